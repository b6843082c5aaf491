package signin

import (
	"log/slog"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// otherAccount is the parameter of a link to a provider by which somebody else can sign in there.
const otherAccount = "other_account"

// maxLogoutState bounds the state of a logout request, in bytes: it is in the provider's address.
const maxLogoutState = 4 << 10

// accountSwitch lets somebody else sign in than the person who is signed in at an identity provider. Asked for another sign-in
// while that person's lasts, a provider such as Keycloak demands that person's password.
type accountSwitch struct {
	frame    *Frame
	accounts *people.Accounts
	sessions *session.Sessions
	issuer   string
	logger   *slog.Logger
}

// isNamed reports whether a login_hint names a person.
func isNamed(person *session.SignedIn, hint string) bool {
	return hint == person.Subject || person.User.IsNamed(hint)
}

// leave ends the session of this browser if it can end at its provider too, and returns where the browser goes: there, or at
// once to next.
func (a *accountSwitch) leave(w http.ResponseWriter, r *http.Request, next string) (string, error) {
	stored, err := a.sessions.OfBrowser(r)
	if stored == nil || err != nil || a.accounts.Providers[stored.Provider] == nil {
		return next, err
	}
	target, err := a.signOut(w, r, a.accounts.Providers[stored.Provider], stored.UpstreamIDToken, next)
	if target == "" || err != nil {
		return next, err
	}
	audit.NoteSessionEndReason(r.Context(), "the person let somebody else sign in in this browser")
	if err := a.sessions.End(r.Context(), stored); err != nil {
		return "", err
	}
	browser.RemoveCookie(w, browser.SessionCookie)
	return target, nil
}

// signOut returns where to sign out at a provider, which sends the browser to next by way of our logout endpoint; "" if that
// cannot be had.
func (a *accountSwitch) signOut(w http.ResponseWriter, r *http.Request, p *people.Provider, idToken, next string) (target string, err error) {
	state, err := a.frame.Sealer.Seal(w, r, "signed out", next)
	if err != nil {
		return "", err
	}
	if len(state) <= maxLogoutState {
		target, err = p.Client.EndSessionURL(r.Context(), idToken, a.issuer+endpoint.Logout+"/"+p.Key, state)
	}
	if err != nil {
		a.logger.WarnContext(r.Context(), "not signed out at the identity provider", "idp", p.Key, "error", err)
	}
	return target, nil
}

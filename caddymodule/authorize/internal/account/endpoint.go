package account

import (
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

const (
	pageLifetime = time.Hour // of the page's forms

	// setupLifetime is how long enrolling may take. It begins soon after a sign-in.
	setupLifetime = 10 * time.Minute

	// recent is how old a sign-in may be to change factors. The sign-in page asks for one of
	// recentAge; the minute between is for the clocks of identity providers.
	recent    = recentAge + time.Minute
	recentAge = 5 * time.Minute
)

// Describe says in words what an item of a scope allows a person's app.
type Describe func(item string, user *people.User) *page.Text

// Config is what the page needs.
type Config struct {
	*endpoint.Responder
	Pages    *page.Site        // shows it
	Keys     keyring.Sealing   // seal its forms
	Accounts *people.Accounts  // whose it is
	Factors  *factor.Factors   // what they enrol
	Sessions *session.Sessions // where they are signed in
	Patients *launch.Patients  // whose records apps have access to
	Apps     *token.Apps       // who has access in their name
	Revoker  *token.Revoker    // ends that
	Limiter  *lockout.Limiter  // counts wrong codes
	Describe Describe          // says what apps may do
}

// account is the endpoint. It routes to the parts of the page.
type account struct {
	frame    *frame
	sessions *sessions
	apps     *apps
	factors  *factors
	app      *authenticatorApp
	passkeys *passkeys
}

// New returns the endpoint.
func New(c Config) http.Handler {
	frame := &frame{site: c.Pages, trail: c.Trail, sealer: &browser.Sealer{Keys: c.Keys}, issuers: c.Accounts.Issuers()}
	sessions := &sessions{listing: session.Listing{Sessions: c.Sessions}, providers: c.Accounts.Providers, turns: fairqueue.New(1)}
	factors := &factors{frame: frame, kept: c.Factors, sessions: sessions}
	a := &account{
		frame: frame, sessions: sessions, factors: factors,
		apps:     &apps{all: c.Apps, patients: c.Patients, logger: c.Logger, revoker: c.Revoker, describe: c.Describe},
		app:      &authenticatorApp{frame: frame, factors: factors, limiter: c.Limiter, issuer: c.Issuer},
		passkeys: &passkeys{frame, factors},
	}
	return c.Handler(a.serve, http.MethodGet, http.MethodPost)
}

func (a *account) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.sessions.listing.Sessions.Current(r)
	switch {
	case err != nil:
		a.frame.showError(w, r, err)
	case signedIn == nil:
		signIn(w, r, nil)
	case r.Method == http.MethodPost:
		a.submit(w, r, signedIn)
	default:
		a.show(w, r, signedIn)
	}
}

// show shows the page, or a part of it.
func (a *account) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	show := map[string]func(http.ResponseWriter, *http.Request, *session.SignedIn){"app": a.app.show, "passkey": a.passkeys.show}[r.URL.Query().Get("part")]
	if show == nil {
		a.showOverview(w, r, signedIn)
		return
	}
	if a.factors.mayChange(w, r, signedIn) {
		show(w, r, signedIn)
	}
}

// signIn sends the browser to the sign-in page, and back to the part that it is at.
func signIn(w http.ResponseWriter, r *http.Request, ask url.Values) {
	q := url.Values{}
	maps.Copy(q, ask)
	if part := r.URL.Query().Get("part"); part != "" {
		q.Set("part", part)
	}
	target := endpoint.Login
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	redirect(w, target)
}

func redirect(w http.ResponseWriter, target string) {
	w.Header().Set("Location", target)
	w.WriteHeader(http.StatusSeeOther)
}

package account

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
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
	Apps     *token.Apps       // who has access in their name
	Revoker  *token.Revoker    // ends that
	Limiter  *lockout.Limiter  // counts wrong codes
	Describe Describe          // says what apps may do
}

// account is the endpoint.
type account struct {
	Config
	sealer *browser.Sealer
	turns  *fairqueue.Queue // of people: to end all sessions is costly
}

// New returns the endpoint.
func New(c Config) http.Handler {
	a := &account{Config: c, sealer: &browser.Sealer{Keys: c.Keys}, turns: fairqueue.New(1)}
	return c.Handler(a.serve, http.MethodGet, http.MethodPost)
}

func (a *account) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.Sessions.Current(r)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case signedIn == nil:
		a.signIn(w, r, nil)
	case r.Method == http.MethodPost:
		a.submit(w, r, signedIn)
	default:
		a.show(w, r, signedIn)
	}
}

// show shows the page, or a part of it.
func (a *account) show(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	show := map[string]func(http.ResponseWriter, *http.Request, *session.SignedIn){"app": a.showAppSetup, "passkey": a.showPasskeySetup}[r.URL.Query().Get("part")]
	if show == nil {
		a.showOverview(w, r, signedIn)
		return
	}
	if a.mayChange(w, r, signedIn) {
		show(w, r, signedIn)
	}
}

// signIn sends the browser to the sign-in page, and back to the part that it is at.
func (a *account) signIn(w http.ResponseWriter, r *http.Request, ask url.Values) {
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

// mayChange reports whether a person may change their factors now. If they must sign in
// again or prove themselves by a second factor first, it sends them there.
func (a *account) mayChange(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) bool {
	held, err := a.Factors.Of(r.Context(), signedIn.User)
	switch {
	case err == nil && !a.Factors.Local(signedIn.User):
		err = errNotHere
	case err == nil && (time.Since(signedIn.At) > recent || held.Any() && !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor)):
		a.signIn(w, r, url.Values{"max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}})
		return false
	}
	if err != nil {
		a.showError(w, r, err)
		return false
	}
	return true
}

var (
	errPageExpired = oauth2.StartAgain("This page is too old, or was opened in another browser. Open your account again.")
	errNotHere     = oauth2.StartAgain("Your second factor is kept where you sign in, not here.")
	errNoAction    = oauth2.StartAgain("Use the buttons of the page.")
)

// showError shows an error to the person.
func (a *account) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	a.Trail.RecordRefusal(r, audit.Event{Kind: audit.Factor, Err: err})
	message := page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e)}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("That did not work"), Text: problem(err)}
	}
	a.Pages.ShowMessage(w, r, e.HTTPStatus(), message)
}

// problem says what is wrong with a change of factors.
func problem(err error) *page.Text {
	switch {
	case errors.Is(err, factor.ErrEnrolled):
		return page.T("You have it already, perhaps since a moment ago in another tab.")
	case errors.Is(err, factor.ErrConfigured):
		return page.T("The people who run this site have set up your authenticator app. Only they can change it.")
	case errors.Is(err, factor.ErrTooMany):
		return page.T("You have too many passkeys. Remove one first.")
	case errors.Is(err, factor.ErrUnknown):
		return page.T("It is no longer there.")
	}
	return page.T("Try again, or ask the people who run this site.")
}

// view shows a page whose forms lead here and, if the person has to sign in again, on to
// their identity provider.
func (a *account) view(w http.ResponseWriter, r *http.Request, v page.View) {
	var addresses []string
	for _, key := range a.Accounts.ProviderKeys {
		addresses = append(addresses, a.Accounts.Providers[key].Issuer)
	}
	v.Policy.FormAction = page.FormAction(addresses...)
	a.Pages.Show(w, r, v)
}

// seal seals a session for a page's forms.
func (a *account) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) (string, error) {
	return a.sealer.Seal(w, r, "account", signedIn.SID)
}

// unseal checks that a form was shown in this session and browser.
func (a *account) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	sid, err := a.sealer.Unseal(r, "account", sealed, pageLifetime)
	if errors.Is(err, keyring.ErrUnsealed) || err == nil && sid != signedIn.SID {
		return errPageExpired
	}
	return err
}

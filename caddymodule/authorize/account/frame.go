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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const pageLifetime = time.Hour // of the page's forms

// frame shows the parts of the page, and seals their forms.
type frame struct {
	site    *page.Site
	trail   *audit.Recorder
	sealer  *browser.Sealer
	issuers []string // of identity providers
}

var (
	errPageExpired = oauth2.StartAgain("This page is too old, or was opened in another browser. Open your account again.")
	errNotHere     = oauth2.StartAgain("Your second factor is kept where you sign in, not here.")
	errNoAction    = oauth2.StartAgain("Use the buttons of the page.")
)

// showError shows an error to the person.
func (f *frame) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	f.trail.RecordRefusal(r, audit.Event{Kind: audit.Factor, Err: err})
	message := page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e)}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("That did not work"), Text: problem(err)}
	}
	f.site.ShowMessage(w, r, e.HTTPStatus(), message)
}

// problem says what is wrong with a change of factors.
func problem(err error) *page.Text {
	switch {
	case errors.Is(err, factor.ErrEnrolled):
		return page.T("You have it already, perhaps from another tab.")
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
func (f *frame) view(w http.ResponseWriter, r *http.Request, v page.View) {
	v.Policy.FormAction = page.FormAction(f.issuers...)
	f.site.Show(w, r, v)
}

// seal seals a session for a page's forms.
func (f *frame) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) (string, error) {
	return f.sealer.Seal(w, r, "account", signedIn.SID)
}

// unseal checks that a form was shown in this session and browser.
func (f *frame) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	return f.sealer.Check(r, "account", sealed, signedIn.SID, pageLifetime, errPageExpired)
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
	endpoint.Redirect(w, http.StatusSeeOther, target)
}

func showDone(w http.ResponseWriter, what string) {
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Account+"?"+url.Values{"done": {what}}.Encode())
}

// done are what the page says after an action.
var done = map[string]*page.Text{
	"end_app":        page.T("The app no longer has access."),
	"end_apps":       page.T("No app has access any more."),
	"end_session":    page.T("You are signed out of that session."),
	"end_sessions":   page.T("You are signed out everywhere else."),
	"remove_app":     page.T("Your authenticator app is removed, and you are signed out everywhere else."),
	"remove_passkey": page.T("The passkey is removed, and you are signed out everywhere else."),
	"rename_passkey": page.T("The passkey has a new name."),
	"enrol_app":      page.T("Your authenticator app is set up."),
	"enrol_passkey":  page.T("Your passkey is set up."),
}

package adminpage

import (
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	// recent is how old a sign-in may be to open the page. The sign-in page asks for one of five minutes; the minute
	// more is for the clocks of identity providers.
	recent = 6 * time.Minute

	// formLifetime is how long a form of the page can be sent.
	formLifetime = 10 * time.Minute

	// purpose is what the page's forms are sealed for.
	purpose = "admin"
)

type admin struct {
	core   *authorize.Core
	scope  string // who has it by a scope limit may open the page
	store  Store
	sealer *browser.Sealer
	turns  *fairqueue.Queue // of administrators: to list everything is costly
}

func (a *admin) serve(w http.ResponseWriter, r *http.Request) {
	signedIn, err := a.core.Sessions.Current(r)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case signedIn == nil:
		signIn(w)
	case !a.core.Accounts.ScopeLimits.Gives(signedIn.User.Attributes(), a.scope):
		a.refuse(w, r, signedIn)
	case !oauth2.MeetsACR(signedIn.ACR(), oauth2.ACRMultiFactor), r.Method == http.MethodGet && signedIn.Age > recent:
		a.prove(w, r, signedIn)
	default:
		a.answer(w, r, signedIn)
	}
}

// answer answers somebody who may open the page.
func (a *admin) answer(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	leave, err := a.turns.Enter(r.Context(), signedIn.User.ID)
	if err != nil {
		a.showError(w, r, err)
		return
	}
	defer leave()
	audit.NoteAuthenticated(r.Context())
	if r.Method == http.MethodPost {
		a.submit(w, r, signedIn)
		return
	}
	a.show(w, r, signedIn)
}

var errNotAdmin = &oauth2.Error{Code: "access_denied", Description: "the person may not open the page of administrators", Status: http.StatusForbidden}

func (a *admin) refuse(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	a.core.Responder.Trail.Record(r.Context(), audit.Event{Kind: audit.User, Actor: signedIn.User.ID, Err: errNotAdmin})
	a.core.Pages.ShowMessage(w, r, http.StatusForbidden, page.Message{
		Title: page.T("You may not open this page"), Text: page.T("It is for administrators. Who is one is decided by the people who run this site."),
	})
}

// prove sends somebody to the sign-in page, for a second factor. Who could have one here and has none sets it up first.
func (a *admin) prove(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	held, err := a.core.Factors.Of(r.Context(), signedIn.User)
	switch {
	case err != nil:
		a.showError(w, r, err)
	case a.core.Factors.Local(signedIn.User) && !held.Any():
		a.core.Pages.ShowMessage(w, r, http.StatusForbidden, page.Message{
			Title: page.T("You need a second factor"), Text: page.T("Set one up in your account, and then open this page again."),
			Next: &page.Link{Address: endpoint.Account, Text: page.T("Your account")},
		})
	default:
		signIn(w)
	}
}

// signIn sends the browser to the sign-in page, and back.
func signIn(w http.ResponseWriter) {
	endpoint.Redirect(w, http.StatusSeeOther, endpoint.Login+"?"+url.Values{"to": {purpose}, "max_age": {"300"}, "acr_values": {oauth2.ACRMultiFactor}}.Encode())
}

var errPageExpired = oauth2.StartAgain("This page is too old, or was opened in another browser. Open it again.")

// seal seals a session for a page's forms.
func (a *admin) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) (string, error) {
	return a.sealer.Seal(w, r, purpose, signedIn.SID)
}

// unseal checks that a form was shown in this session and browser, lately.
func (a *admin) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	return a.sealer.Check(r, purpose, sealed, signedIn.SID, formLifetime, errPageExpired)
}

// view shows a page whose forms lead here and, if the administrator has to sign in again, on to their identity provider.
func (a *admin) view(w http.ResponseWriter, r *http.Request, v page.View) {
	v.Policy.FormAction = page.FormAction(a.core.Accounts.Issuers()...)
	a.core.Pages.Show(w, r, v)
}

// showError shows an error. What the administrator can mend is said in English, as in the configuration.
func (a *admin) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	back := &page.Link{Address: path, Text: page.T("Back to the administration")}
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e), Next: back}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("That did not work"), Text: page.T("Nothing was changed. Go back, and mend what is said below."), Detail: e.Description, Next: back}
	default:
		a.core.Responder.Logger.ErrorContext(r.Context(), "page of administrators not shown", "error", err)
	}
	a.core.Pages.ShowMessage(w, r, e.HTTPStatus(), message)
}

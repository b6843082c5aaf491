package administration

import (
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var errPageExpired = oauth2.StartAgain("This page is too old, or was opened in another browser. Open it again.")

// seal seals a session for a page's forms.
func (a *admin) seal(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) (string, error) {
	return a.sealer.Seal(w, r, purpose, signedIn.SID)
}

// unseal checks that a form was shown in this session and browser, lately.
func (a *admin) unseal(r *http.Request, signedIn *session.SignedIn, sealed string) error {
	sid, err := a.sealer.Unseal(r, purpose, sealed, formLifetime)
	if errors.Is(err, keyring.ErrUnsealed) || err == nil && sid != signedIn.SID {
		return errPageExpired
	}
	return err
}

// view shows a page whose forms lead here and, if the administrator has to sign in again, on to their identity provider.
func (a *admin) view(w http.ResponseWriter, r *http.Request, v page.View) {
	v.Policy.FormAction = page.FormAction(a.Accounts.Issuers()...)
	a.Pages.Show(w, r, v)
}

// showError shows an error. What the administrator can mend is said in English, as in the configuration.
func (a *admin) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	back := &page.Link{Address: endpoint.Admin, Text: page.T("Back to the administration")}
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e), Next: back}
	case e.Code != "server_error":
		message = page.Message{Title: page.T("That did not work"), Text: page.T("Nothing was changed. Go back, and mend what is said below."), Detail: e.Description, Next: back}
	default:
		a.Responder.Logger.ErrorContext(r.Context(), "page of administrators not shown", "error", err)
	}
	a.Pages.ShowMessage(w, r, e.HTTPStatus(), message)
}

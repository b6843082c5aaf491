package signin

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// PageLifetime is how long a page can be used. It holds no secret, but one left open should
// not lead into an app that has long forgotten its request.
const PageLifetime = time.Hour

// loginPurpose seals requests for the sign-in page.
const loginPurpose = "login"

// ErrPageExpired says that a page can no longer be used, or not in this browser.
var ErrPageExpired = oauth2.StartAgain("This sign-in page is too old, or was opened in another browser. Go back to the app and sign in from there again.")

// ErrDenied says that the person did not want to go on.
var ErrDenied = &oauth2.Error{Code: "access_denied", Description: "the person did not allow it"}

// Frame shows the pages of requests, and seals what their forms bring back.
type Frame struct {
	Site      *page.Site      // what people see
	Sealer    *browser.Sealer // for this browser alone
	Trail     *audit.Recorder // of errors
	Issuers   []string        // of identity providers, which forms may lead to
	Ancestors string          // who may frame the pages of requests
}

// Show shows a page for a request. Its forms may lead on to the client or to a provider, and to further addresses.
func (f *Frame) Show(w http.ResponseWriter, r *http.Request, req *Request, v page.View, further ...string) {
	v.Locales, v.Policy.FormAction, v.Policy.Ancestors = req.How.UILocales, f.FormAction(append(further, req.To.Address)...), f.Ancestors
	f.Site.Show(w, r, v)
}

// FormAction is the policy for forms that may lead to addresses, or to a provider.
func (f *Frame) FormAction(addresses ...string) string {
	return page.FormAction(append(addresses, f.Issuers...)...)
}

// ShowError shows an error to the person, because there is no redirect URI to send it to. It
// reflects no input.
func (f *Frame) ShowError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{
		Title: page.T("This link does not work"), Detail: e.Description,
		Text: page.T("The app that sent you here made a mistake. Go back to it and try again. If that does not help, tell the people who run it:"),
	}
	f.Trail.RecordRefusal(r, audit.Event{Kind: kindOf(r.URL.Path), Err: err})
	var own *oauth2.Error
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e)}
	case !errors.As(err, &own):
		message = page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	}
	f.Site.Show(w, r, page.View{Template: "message", Status: e.HTTPStatus(), Data: message, Policy: page.Policy{Ancestors: f.Ancestors}})
}

// kindOf is the kind of audit event of an endpoint.
func kindOf(path string) string {
	switch endpoint.Name(path) {
	case "login", "callback":
		return audit.SignIn
	case "logout":
		return audit.SignOut
	}
	return audit.Authorization
}

// Failed reports whether there is an error, and sends it: by the purpose of the request, or to the
// person if there is no request.
func (f *Frame) Failed(w http.ResponseWriter, r *http.Request, req *Request, err error) bool {
	switch {
	case err == nil:
		return false
	case req == nil:
		f.ShowError(w, r, err)
	default:
		req.Purpose.Refuse(w, r, err)
	}
	return true
}

// RedirectToPage sends the browser to a page with a sealed text: the request, and what the page is
// bound to beside the browser.
func (f *Frame) RedirectToPage(w http.ResponseWriter, r *http.Request, req *Request, path, purpose, text string) {
	sealed, err := f.Sealer.Seal(w, r, purpose, text)
	f.redirectSealed(w, r, req, http.StatusFound, path+"?request=", sealed, err)
}

// redirectSealed uses the request up, and sends the browser to an address that ends with what was sealed for it, or with an
// error to the app.
func (f *Frame) redirectSealed(w http.ResponseWriter, r *http.Request, req *Request, status int, address, sealed string, err error) {
	if err == nil {
		err = req.MarkUsed(r.Context())
	}
	if err != nil {
		req.Purpose.Refuse(w, r, err)
		return
	}
	endpoint.Redirect(w, status, address+url.QueryEscape(sealed))
}

// Unseal opens a text that was sealed for a page and this browser.
func (f *Frame) Unseal(r *http.Request, purpose, sealed string) (string, error) {
	return f.Sealer.Unseal(r, purpose, sealed, PageLifetime, ErrPageExpired)
}

// PageParameters reads a page's query or form.
func PageParameters(w http.ResponseWriter, r *http.Request) (p oauth2.Parameters, err error) {
	if r.Method == http.MethodPost {
		p, err = oauth2.ReadForm(w, r)
	} else {
		p, err = oauth2.ReadQuery(r.URL.RawQuery)
	}
	if err != nil {
		return nil, err
	}
	return p, p.Check("request", "factor")
}

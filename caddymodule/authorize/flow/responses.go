package flow

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// responseParameters are those of an authorization response, in this order.
type responseParameters []struct{ name, value string }

// add adds a parameter that has a value.
func (ps *responseParameters) add(name, value string) {
	if value != "" {
		*ps = append(*ps, struct{ name, value string }{name, value})
	}
}

// encode writes spaces as %20, because some decoders of fragments take + literally.
func (ps responseParameters) encode() string {
	var b strings.Builder
	for i, p := range ps {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=" + strings.ReplaceAll(url.QueryEscape(p.value), "+", "%20"))
	}
	return b.String()
}

// redirect, unlike [http.Redirect], leaves the address as it is and writes no body.
func redirect(w http.ResponseWriter, status int, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(status)
}

// responses sends browsers back to clients, or shows errors to people.
type responses struct {
	issuer     string
	omitIssuer bool
	pages      *pages
	trail      *audit.Recorder
}

// send sends the browser to the client, with state and iss (RFC 9207) last. A 302 turns the
// POST of the sign-in form into a GET, so that the client does not get the password (RFC 9700
// §4.12).
func (rs *responses) send(w http.ResponseWriter, r *http.Request, req *authorizationRequest, mode string, p responseParameters) {
	p.add("state", req.state)
	if !rs.omitIssuer {
		p.add("iss", rs.issuer)
	}
	separator := "?"
	switch {
	case mode == ModeFormPost:
		rs.pages.showFormPost(w, r, req, p)
		return
	case mode == ModeFragment:
		separator = "#"
	case strings.Contains(req.redirectURI, "?"):
		separator = "&"
	}
	redirect(w, http.StatusFound, req.redirectURI+separator+p.encode())
}

// failed reports whether there is an error, and sends it: to the client if there is a request,
// otherwise to the person.
func (rs *responses) failed(w http.ResponseWriter, r *http.Request, req *authorizationRequest, err error) bool {
	switch {
	case err == nil:
		return false
	case req == nil:
		rs.showError(w, r, err)
	default:
		rs.redirectError(w, r, req, err)
	}
	return true
}

// redirectError sends an error to the client, by the errorMode of the request. As the
// interface wants it, only errors of identity providers have an error_description, unless the
// client has the option; the others are explained in the audit trail.
//
// The request is used up, unless the failure is ours. The second use of a request_uri is
// shown to the person, as the response to the first has been sent to the client.
func (rs *responses) redirectError(w http.ResponseWriter, r *http.Request, req *authorizationRequest, err error) {
	e := oauth2.AsError(err)
	switch {
	case errors.Is(err, errRequestURIUsed):
		rs.showError(w, r, err)
		return
	case req.account:
		rs.showAccountError(w, r, err)
		return
	case e.HTTPStatus() < http.StatusInternalServerError:
		_ = req.markUsed(r.Context()) // refused in any case
	}
	rs.trail.RecordRefusal(r, audit.Event{Kind: audit.Authorization, ClientID: req.client.ID, Grant: req.responseType, Err: err})
	p := responseParameters{{"error", codeOf(e, err)}}
	if e.Shown || req.client.ErrorDescription {
		p.add("error_description", printable(e.Description))
	}
	rs.send(w, r, req, req.errorMode, p)
}

// codeOf is the code of an error in a redirect, which shows no status: temporarily_unavailable
// stands for 503 there (RFC 6749 §4.1.2.1): a store that cannot be reached, or is full.
func codeOf(e *oauth2.Error, err error) string {
	if (errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrFull)) && e.Code == "server_error" {
		return "temporarily_unavailable"
	}
	return e.Code
}

// showError shows an error to the person, because there is no redirect URI to send it to. It
// reflects no input.
func (rs *responses) showError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	message := page.Message{
		Title: page.T("This link does not work"), Detail: e.Description,
		Text: page.T("The app that sent you here made a mistake. Go back to it and try again. If that does not help, tell the people who run it:"),
	}
	rs.trail.RecordRefusal(r, audit.Event{Kind: kindOf(r.URL.Path), Err: err})
	var own *oauth2.Error
	switch {
	case e.Personal:
		message = page.Message{Title: page.T("Please start again"), Text: page.Problem(e)}
	case !errors.As(err, &own):
		message = page.Message{Title: page.T("Something went wrong here"), Text: page.T("It is not your fault. Please try again in a minute.")}
	}
	rs.pages.showMessage(w, r, e.HTTPStatus(), message)
}

// showAccountError shows an error of a sign-in for the account page: there is no app that made
// a mistake.
func (rs *responses) showAccountError(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	if e.Personal || e.Code == "server_error" {
		rs.showError(w, r, err)
		return
	}
	rs.trail.RecordRefusal(r, audit.Event{Kind: audit.SignIn, Err: err})
	rs.pages.ShowMessage(w, r, e.HTTPStatus(), page.Message{
		Title: page.T("You are not signed in"), Text: page.T("That did not work. Try again, or ask the people who run this site."),
	})
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

package flow

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// answerParameters are what is appended to a redirect URI, in this order.
type answerParameters []struct{ name, value string }

func (a *answerParameters) add(name, value string) {
	if value != "" {
		*a = append(*a, struct{ name, value string }{name, value})
	}
}

// encode writes spaces as %20, which every decoder of queries and fragments
// reads back as a space; + is not one in a fragment for some.
func (a answerParameters) encode() string {
	var b strings.Builder
	for i, p := range a {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(p.name + "=" + strings.ReplaceAll(url.QueryEscape(p.value), "+", "%20"))
	}
	return b.String()
}

// responses sends browsers back to clients, and shows people what is wrong.
type responses struct {
	issuer     string
	omitIssuer bool
	pages      *pages
	trail      *audit.Recorder
}

// send sends the browser to the client, with state and issuer (RFC 9207) last. A
// 302 turns the sign-in form's POST into a GET, so that the password is not sent
// on (RFC 9700 §4.12).
func (rs *responses) send(w http.ResponseWriter, r *http.Request, req *authorizationRequest, mode string, a answerParameters) {
	a.add("state", req.state)
	if !rs.omitIssuer {
		a.add("iss", rs.issuer)
	}
	separator := "?"
	switch {
	case mode == ModeFormPost:
		rs.pages.postForm(w, r, req, a)
		return
	case mode == ModeFragment:
		separator = "#"
	case strings.Contains(req.redirectURI, "?"):
		separator = "&"
	}
	w.Header().Set("Location", req.redirectURI+separator+a.encode())
	w.WriteHeader(http.StatusFound)
}

// failed sends an error where it belongs, and says whether there was one: to the
// redirect URI if the request is known to have a good one, else to the person.
func (rs *responses) failed(w http.ResponseWriter, r *http.Request, req *authorizationRequest, err error) bool {
	switch {
	case err == nil:
		return false
	case req == nil:
		rs.refuse(w, r, err)
	default:
		rs.redirectError(w, r, req, err)
	}
	return true
}

// redirectError sends an error to the client, in the query unless the request
// decides otherwise (see chooseModes). The interface has them without an
// error_description, but for those of identity providers; the reason of the others
// is in the audit trail.
//
// What the request came by is used up, unless the failure is ours. Who used it a
// second time is not sent back with it, as the one before has been.
func (rs *responses) redirectError(w http.ResponseWriter, r *http.Request, req *authorizationRequest, err error) {
	e := oauth2.AsError(err)
	switch {
	case errors.Is(err, errSpentPush):
		rs.refuse(w, r, err)
		return
	case e.HTTPStatus() < http.StatusInternalServerError:
		_ = req.spent(r.Context()) // refused, whether it was the first or not
	}
	rs.trail.RecordRefusal(r, audit.Event{Kind: audit.Authorization, ClientID: req.client.ID, Grant: req.responseType, Err: err})
	var a answerParameters
	a.add("error", e.Code)
	if e.Shown {
		a.add("error_description", e.Description)
	}
	rs.send(w, r, req, req.errorMode, a)
}

// refuse shows an error to the person, because there is nowhere to send it. It
// reflects nothing of the request.
func (rs *responses) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	page := messagePage{
		Title: "This link does not work", Detail: e.Description,
		Text: "The app that sent you here made a mistake. Go back to it and try again. If that does not help, tell the people who run it:",
	}
	rs.trail.RecordRefusal(r, audit.Event{Kind: kindOf(r.URL.Path), Err: err})
	var own *oauth2.Error
	switch {
	case e.Personal:
		page = messagePage{Title: "Please start again", Text: e.Description}
	case !errors.As(err, &own):
		page = messagePage{Title: "Something went wrong here", Text: "It is not your fault. Please try again in a minute."}
	}
	rs.pages.showMessage(w, r, e.HTTPStatus(), page)
}

// kindOf is the kind of event that an endpoint for people is there for.
func kindOf(path string) string {
	switch endpoint.Name(path) {
	case "login", "callback":
		return audit.SignIn
	case "logout":
		return audit.SignOut
	}
	return audit.Authorization
}

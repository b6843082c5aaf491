package signin

import (
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// visitPrefix begins the Query of a sign-in for a page of the gateway. No query of a client's can
// hold it.
const visitPrefix = "\x00account?"

// visits are sign-ins for the account page, the launch page and that of administrators. They wait, sealed, where those of
// apps do; there is no redirect URI to answer to.
type visits struct {
	frame  *Frame
	stepUp *StepUp
}

// read makes the request of a page, with max_age and acr_values as in an authorization request. It
// is for the account page or a part of it; or, if the parameter to says so, for the launch page or that of administrators,
// for which two factors must be shown.
func (vs *visits) read(query string) (*Request, error) {
	p, err := oauth2.QueryParameters(query)
	if err != nil {
		return nil, err
	}
	req := &Request{
		To:    Destination{Address: address(endpoint.Account, "part", p)},
		Query: visitPrefix + p.Keep("acr_values", "app", "login_hint", "max_age", "part", "prompt", "to", "ui_locales"),
	}
	switch p.Get("to") {
	case "launch_page":
		req.To = Destination{Title: "SMART Sandbox", Address: address(endpoint.LaunchPage, "app", p)}
	case "admin":
		req.To = Destination{Address: endpoint.Admin, ACR: oauth2.ACRMultiFactor}
	}
	err = req.How.Read(p)
	req.How.Prompt = "" // max_age says all
	req.Purpose = visit{visits: vs, request: req}
	return req, err
}

// address is that of a page, with one parameter if that has a value.
func address(path, name string, p oauth2.Parameters) string {
	if value := p.Get(name); value != "" {
		return path + "?" + url.Values{name: {value}}.Encode()
	}
	return path
}

// visit opens a page for who has signed in.
type visit struct {
	visits  *visits
	request *Request
}

// Continue implements [Purpose].
func (v visit) Continue(w http.ResponseWriter, r *http.Request, signedIn *session.SignedIn) {
	if v.visits.stepUp.Needed(w, r, v.request, signedIn) {
		return
	}
	if err := v.request.MarkUsed(r.Context()); err != nil {
		v.Refuse(w, r, err)
		return
	}
	endpoint.Redirect(w, http.StatusSeeOther, v.request.To.Address)
}

// Refuse implements [Purpose]: there is no app that made a mistake.
func (v visit) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := oauth2.AsError(err)
	if e.Personal || e.Code == "server_error" {
		v.visits.frame.ShowError(w, r, err)
		return
	}
	v.visits.frame.Trail.RecordRefusal(r, audit.Event{Kind: audit.SignIn, Err: err})
	v.visits.frame.Site.ShowMessage(w, r, e.HTTPStatus(), page.Message{
		Title: page.T("You are not signed in"), Text: page.T("That did not work. Try again, or ask the people who run this site."),
	})
}

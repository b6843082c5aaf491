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

// A Target is a page of the gateway for people who are signed in. Others are redirected to the sign-in page, with the name of
// the target as the parameter to.
type Target struct {
	Path  string // of the page
	Title string // of the page, shown at the sign-in. Default: the person's account.
	Keep  string // parameter of the page that outlives the sign-in, or ""
	ACR   string // the least authentication context class that the page requires, or ""
}

// visits are sign-ins for pages of the gateway. They wait, sealed, where those of apps do; there is no redirect URI to answer to.
type visits struct {
	frame   *Frame
	stepUp  *StepUp
	targets map[string]Target
}

// read makes the request of a page, with max_age and acr_values as in an authorization request. It
// is for the page that the parameter to names, or else for the account page or a part of it.
func (vs *visits) read(query string) (*Request, error) {
	p, err := oauth2.QueryParameters(query)
	if err != nil {
		return nil, err
	}
	target, ok := vs.targets[p.Get("to")]
	if !ok {
		target = Target{Path: endpoint.Account, Keep: "part"}
	}
	req := &Request{
		To:    Destination{Title: target.Title, Address: address(target.Path, target.Keep, p), ACR: target.ACR},
		Query: visitPrefix + p.Keep("acr_values", "login_hint", "max_age", "prompt", "to", "ui_locales", target.Keep),
	}
	err = req.How.Read(p)
	req.How.Prompt = "" // max_age says all
	req.Purpose = visit{visits: vs, request: req}
	return req, err
}

// address is that of a page, with one parameter if that has a value.
func address(path, name string, p oauth2.Parameters) string {
	if value := p.Get(name); name != "" && value != "" {
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

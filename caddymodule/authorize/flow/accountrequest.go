package flow

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// The account page is no client, but people sign in for it by the same steps. Its request is
// made here and waits, sealed, where an app's does; there is no redirect URI to answer to. The
// launch page is the same, with a name.

// accountRequest begins the text of such a request. No query of a client's can hold it.
const accountRequest = "\x00account?"

// noClient stands for the client of the account page: it has no name and no id, allows every
// way to sign in, and asks for nothing.
var noClient = new(client.Client)

// launchPage stands for the client of the launch page.
var launchPage = &client.Client{Name: "SMART Sandbox"}

// account makes the request of the account page, with max_age and acr_values as in an
// authorization request. Afterwards the browser goes to the page, or to a part of it; or, if
// the parameter to says so, to the launch page.
func (q *requests) account(query string) (*authorizationRequest, error) {
	p, err := oauth2.QueryParameters(query)
	if err != nil {
		return nil, err
	}
	req := &authorizationRequest{client: noClient, account: true}
	req.query = accountRequest + keep(p, "acr_values", "app", "login_hint", "max_age", "part", "prompt", "to", "ui_locales")
	req.redirectURI = endpoint.Account
	if part := p.Get("part"); part != "" {
		req.redirectURI += "?" + url.Values{"part": {part}}.Encode()
	}
	if p.Get("to") == "launch_page" {
		req.client, req.redirectURI = launchPage, endpoint.LaunchPage
		if app := p.Get("app"); app != "" {
			req.redirectURI += "?" + url.Values{"app": {app}}.Encode()
		}
	}
	err = checkPrompt(req, p)
	req.prompt = "" // max_age says all
	return req, err
}

// reopen checks a request again that was sealed.
func (q *requests) reopen(ctx context.Context, text string) (*authorizationRequest, error) {
	if query, ok := strings.CutPrefix(text, accountRequest); ok {
		return q.account(query)
	}
	return q.check(ctx, text)
}

// serveLogin is the sign-in page. Without a request of an app's, people sign in for the
// account page.
func (e *authorizationEndpoint) serveLogin(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if r.Method != http.MethodGet || q.Has("request") || q.Has("factor") {
		e.signIn.serve(w, r)
		return
	}
	req, err := e.requests.account(r.URL.RawQuery)
	if !e.responses.failed(w, r, req, err) {
		e.authorizeOrSignIn(w, r, req)
	}
}

// showAccount sends the browser to the account page.
func (a *authorizer) showAccount(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	if err := req.markUsed(r.Context()); err != nil {
		a.responses.redirectError(w, r, req, err)
		return
	}
	redirect(w, http.StatusSeeOther, req.redirectURI)
}

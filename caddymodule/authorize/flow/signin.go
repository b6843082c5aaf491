package flow

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// pageLifetime is how long a page can be used. It holds no secret, but one left open should
// not lead into an app that has long forgotten its request.
const pageLifetime = time.Hour

var errPageExpired = oauth2.StartAgain("This sign-in page is too old, or was opened in another browser. Go back to the app and sign in from there again.")

// signInEndpoint signs people in by name and password, or sends them to their provider.
type signInEndpoint struct {
	*step
	accounts     *people.Accounts
	limiter      *lockout.Limiter
	secondFactor *secondFactorStep
}

// redirectTo sends the browser to the sign-in page, or to the identity provider if there is
// no choice.
func (e *signInEndpoint) redirectTo(w http.ResponseWriter, r *http.Request, req *authorizationRequest) {
	ways := e.accounts.Ways(req.client.IdentityProviders)
	p := req.provider(ways)
	if err := req.checkWays(ways, p); err != nil {
		e.responses.redirectError(w, r, req, err)
		return
	}
	path := endpoint.Login
	if p != nil {
		path += "/" + p.Key
	}
	e.redirectToPage(w, r, req, path, "login", req.query)
}

func (e *signInEndpoint) serve(w http.ResponseWriter, r *http.Request) {
	p, err := pageParameters(w, r)
	if err != nil {
		e.responses.showError(w, r, err)
		return
	}
	if p.Get("factor") != "" {
		e.secondFactor.serve(w, r, p)
		return
	}
	req, err := e.pending(r, p.Get("request"))
	switch {
	case e.responses.failed(w, r, req, err):
	case p.Get("decision") == "deny":
		e.responses.redirectError(w, r, req, errDenied)
	case r.Method == http.MethodPost && p.Get("assertion") != "":
		e.submitPasskey(w, r, req, p)
	case r.Method == http.MethodPost:
		e.submit(w, r, req, p)
	default:
		e.show(w, r, http.StatusOK, req, page.SignIn{Request: p.Get("request"), Username: e.requests.username(req)})
	}
}

// pageParameters reads a page's query or form.
func pageParameters(w http.ResponseWriter, r *http.Request) (p oauth2.Parameters, err error) {
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

// submit handles the form. An e-mail address in a provider's domain leads to that provider,
// whatever the password; any other name must be a local user's.
func (e *signInEndpoint) submit(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters) {
	ways := e.accounts.Ways(req.client.IdentityProviders)
	address := strings.TrimSpace(p.Get("username")) // phone keyboards add a space
	if provider := ways.ByDomain(address); provider != nil {
		q := url.Values{"request": {p.Get("request")}, "login_hint": {address}}
		redirect(w, http.StatusSeeOther, endpoint.Login+"/"+provider.Key+"?"+q.Encode())
		return
	}
	user, err := e.checkPassword(r, ways, p)
	data := page.SignIn{Request: p.Get("request"), Username: p.Get("username")}
	event := audit.Event{
		Kind: audit.SignIn, ClientID: req.client.ID, User: e.accounts.Directory.AccountNamed(p.Get("username")),
		Err: err, Anonymous: true, // to name an account proves nothing
	}
	var wait *lockout.WaitError
	switch {
	case errors.As(err, new(lockout.BusyError)):
		e.trail.Record(r.Context(), event)
		lockout.SetRetryAfter(w, lockout.BusyWait)
		data.Problem.Busy = lockout.BusyWait
		e.show(w, r, http.StatusServiceUnavailable, req, data)
	case errors.As(err, &wait):
		e.trail.RecordLockout(r.Context(), event)
		lockout.SetRetryAfter(w, wait.Wait)
		data.Problem.Wait = wait.Wait
		e.show(w, r, http.StatusTooManyRequests, req, data)
	case errors.Is(err, people.ErrWrongPassword):
		e.trail.Record(r.Context(), event)
		data.Problem.Wrong = true
		e.show(w, r, http.StatusForbidden, req, data)
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		e.responses.redirectError(w, r, req, err)
	default:
		e.secondFactor.begin(w, r, req, user, session.Session{AMR: []string{"pwd"}})
	}
}

// checkPassword returns the user whose name and password were typed.
func (e *signInEndpoint) checkPassword(r *http.Request, ways people.Ways, p oauth2.Parameters) (user *people.User, err error) {
	if !ways.Local {
		return nil, people.ErrWrongPassword
	}
	name := p.Get("username")
	counters, known, err := e.limiter.Counters(r, lockout.Password, name, e.accounts.Directory.AccountNamed(name))
	if err != nil {
		return nil, err
	}
	network := fairqueue.Network(audit.ClientAddress(r.Context()))
	err = e.limiter.Attempt(r.Context(), counters, people.ErrWrongPassword, func() error {
		user, err = e.accounts.Directory.SignIn(r.Context(), network, known, name, p.Get("password"))
		return err
	})
	return user, err
}

package flow

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
)

// passkeyPrompt is a challenge as pages show it; nil for none.
func passkeyPrompt(c *factor.Ceremony) *page.Passkey {
	if c == nil {
		return nil
	}
	return &page.Passkey{Options: c.Options, Sealed: c.Sealed}
}

// show shows the sign-in page, with a challenge for passkeys if local users may sign in, and
// somebody has one.
func (e *signInEndpoint) show(w http.ResponseWriter, r *http.Request, status int, req *authorizationRequest, data page.SignIn) {
	c, err := e.challenge(w, r, req)
	if err != nil {
		e.responses.redirectError(w, r, req, err)
		return
	}
	data.Passkey = passkeyPrompt(c)
	e.pages.showSignIn(w, r, status, req, data)
}

// challenge begins a sign-in by passkey; nil if there is none to sign in with.
func (e *signInEndpoint) challenge(w http.ResponseWriter, r *http.Request, req *authorizationRequest) (*factor.Ceremony, error) {
	if !e.passkeys(req) {
		return nil, nil
	}
	used, err := e.secondFactor.factors.Passkeys.InUse(r.Context())
	if err != nil || !used {
		return nil, err
	}
	return e.secondFactor.factors.Passkeys.BeginSignIn(w, r)
}

// passkeys reports whether people can sign in for a request with a passkey.
func (e *signInEndpoint) passkeys(req *authorizationRequest) bool {
	return e.secondFactor.factors.Passkeys != nil && e.accounts.Ways(req.client.IdentityProviders).Local
}

// submitPasskey signs in who answered the page's challenge. There is no second factor to ask
// for: the passkey and what its owner showed it are two.
func (e *signInEndpoint) submitPasskey(w http.ResponseWriter, r *http.Request, req *authorizationRequest, p oauth2.Parameters) {
	answered, err := new(factor.Answered), factor.ErrPasskey
	if e.passkeys(req) {
		answered, err = e.secondFactor.factors.Passkeys.SignIn(r, p.Get("passkey"), p.Get("assertion"))
	}
	switch {
	case errors.Is(err, factor.ErrPasskey):
		event := audit.Event{Kind: audit.SignIn, ClientID: req.client.ID, Err: err, Anonymous: true}
		if answered.User != nil {
			event.User = answered.User.ID
		}
		e.trail.Record(r.Context(), event)
		e.show(w, r, http.StatusForbidden, req, page.SignIn{Request: p.Get("request"), Problem: page.SignInProblem{Passkey: true}})
	case errors.Is(err, context.Canceled): // the browser has disconnected
	case err != nil:
		e.responses.redirectError(w, r, req, err)
	default:
		audit.NoteAuthenticated(r.Context())
		e.secondFactor.startSession(w, r, req, answered.User, session.Session{AMR: answered.AMR})
	}
}

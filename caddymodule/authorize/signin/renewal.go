package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// Renewal renews sessions with an expired access token, at providers that issue no refresh tokens. It redirects the browser
// to the provider and back with prompt=none (OpenID Connect Core §3.1.2.1), which shows no page.
type Renewal struct {
	renderer    *Renderer
	accounts    *people.Accounts
	sessions    *session.Sessions
	beginSignIn func(http.ResponseWriter, *http.Request, *Request) // [SignIn.Begin]
}

// RespondIfNeeded starts a renewal if the session requires it, and reports whether it has responded. The
// callback continues the request.
func (n *Renewal) RespondIfNeeded(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedInPerson) bool {
	p := n.accounts.Providers[signedIn.Provider]
	if !signedIn.ShouldRenew || p == nil {
		return false
	}
	may, err := n.sessions.SignIns.TryRenewal(r.Context(), signedIn.SID, p)
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return true
	}
	pending := newPendingSignIn(p, req.Query)
	pending.SID, pending.Renewal = signedIn.SID, true
	pending.Request.Prompt, pending.Request.LoginHint, pending.Request.UILocales = "none", signedIn.User.ProviderName(), req.Parameters.UILocales
	return may && pending.redirect(n.renderer.Sealer, w, r, p, req)
}

// handleResponse continues the request of a renewal after the provider's response.
func (n *Renewal) handleResponse(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, response *authenticationResponse, newSession session.Session, responseErr error) {
	signedIn, err := n.applyResponse(r, p, req, response, newSession, responseErr)
	switch {
	case err != nil:
		req.Purpose.Reject(w, r, err)
	case signedIn == nil:
		n.beginSignIn(w, r, req)
	default:
		req.SessionRenewed = true
		req.Purpose.Continue(w, r, signedIn)
	}
}

// applyResponse renews or ends the session of a response. It returns the renewed session, or nil if a sign-in is needed.
func (n *Renewal) applyResponse(r *http.Request, p *people.Provider, req *Request, response *authenticationResponse, newSession session.Session, responseErr error) (*session.SignedInPerson, error) {
	stored, err := n.sessions.FindByBrowser(r)
	if err == nil && (stored == nil || stored.SID != response.pending.SID || stored.Provider != p.Key) {
		req.byOtherPerson = true // the session has ended, and the response may identify its person
		return nil, nil
	}
	if err != nil || !n.accounts.SignInMethods(req.Destination.Providers).Includes(p.Key) {
		return nil, err
	}
	if responseErr != nil {
		n.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: stored.User, Person: stored.UpstreamPerson(), Err: responseErr})
	}
	isSamePerson := responseErr == nil && newSession.User == stored.User && newSession.UpstreamSubject == stored.UpstreamSubject
	switch {
	case isSamePerson && newSession.UpstreamSession != stored.UpstreamSession: // a new provider session requires a new gateway session
		return nil, nil
	case isSamePerson:
		err = n.sessions.SignIns.Renew(r.Context(), stored.SID, p.Key, newSession.ProviderTokens)
	case responseErr == nil, endsSession(responseErr):
		audit.RecordSessionEndReason(r.Context(), "not confirmed by the identity provider at renewal")
		return nil, n.sessions.End(r.Context(), stored)
	}
	if err != nil {
		return nil, err
	}
	return n.sessions.CurrentPerson(r)
}

// endsSession reports whether an error response to prompt=none means that the person is no longer signed in at the provider or
// not admitted by the gateway. Other errors are treated as an outage.
func endsSession(responseErr error) bool {
	code := oauth2.AsError(responseErr).Code
	return slices.Contains(forwardedErrors, code) && code != "temporarily_unavailable" && !errors.Is(responseErr, people.ErrAccountNotDeleted)
}

// OfflineAccessRequester requests a refresh token that outlasts the provider's session, before an app gets offline_access.
// Keycloak issues such tokens only on request. Otherwise, the app's access would end with the provider's session.
type OfflineAccessRequester struct {
	renderer *Renderer
	accounts *people.Accounts
	sessions *session.Sessions
}

// RespondIfNeeded redirects the browser to the provider if a longer-lived refresh token is required, and reports whether it has
// responded. If the person has a session at the provider, no page is shown. The request is made once per session, regardless of
// its result.
func (l *OfflineAccessRequester) RespondIfNeeded(w http.ResponseWriter, r *http.Request, req *Request, signedIn *session.SignedInPerson) bool {
	p := l.accounts.Providers[signedIn.Provider]
	if p == nil {
		return false
	}
	expiresWithSession, err := l.sessions.SignIns.EndsWithProviderSession(r.Context(), signedIn.SID, p.Key)
	if err != nil {
		req.Purpose.Reject(w, r, err)
		return true
	}
	return expiresWithSession && l.redirect(w, r, p, req, signedIn.SID)
}

// redirect redirects the browser to the provider and reports success.
func (l *OfflineAccessRequester) redirect(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, sid string) bool {
	pending := newPendingSignIn(p, req.Query)
	pending.SID, pending.Request.UILocales, pending.Request.OfflineAccess = sid, req.Parameters.UILocales, true
	if req.Parameters.HasPrompt("none") {
		pending.Request.Prompt = "none"
	}
	return pending.redirect(l.renderer.Sealer, w, r, p, req)
}

// handleResponse continues the request with the session for which the refresh token was requested, and reports whether it has
// responded. It returns false if the browser's session has changed or another person has returned.
func (l *OfflineAccessRequester) handleResponse(w http.ResponseWriter, r *http.Request, p *people.Provider, req *Request, sid string, identity *relyingparty.Identity, responseErr error) bool {
	signedIn, err := l.sessions.CurrentPerson(r)
	switch {
	case err != nil, signedIn == nil, signedIn.SID != sid, signedIn.Provider != p.Key, !l.accounts.SignInMethods(req.Destination.Providers).Includes(p.Key):
		return false
	case responseErr == nil && signedIn.Subject != identity.Subject:
		return false
	}
	var tokens relyingparty.ProviderTokens
	if responseErr == nil && identity.RefreshToken != "" {
		tokens = identity.ProviderTokens
	}
	if responseErr != nil {
		l.renderer.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignIn, ClientID: req.Destination.ClientID, User: signedIn.User.ID, Person: audit.Person{Provider: p.Key, Subject: signedIn.Subject}, Err: responseErr})
	}
	if err := l.sessions.SignIns.Renew(r.Context(), signedIn.SID, p.Key, tokens); err != nil {
		req.Purpose.Reject(w, r, err)
		return true
	}
	req.FactorsRequested = true
	req.Purpose.Continue(w, r, signedIn)
	return true
}

// LimitScope removes offline_access from a scope (RFC 6749 §3.3) if the provider cannot be queried after
// the session ends, because the grant would outlast the person's removal at the provider.
func (l *OfflineAccessRequester) LimitScope(ctx context.Context, scope []string, signedIn *session.SignedInPerson) ([]string, error) {
	at := slices.Index(scope, client.OfflineAccess)
	if at < 0 {
		return scope, nil
	}
	if outlives, err := l.sessions.SignIns.AllowsOfflineAccess(ctx, signedIn.SID, signedIn.Provider); err != nil || outlives {
		return scope, err
	}
	if scope = slices.Delete(slices.Clone(scope), at, at+1); len(scope) == 0 {
		return nil, &oauth2.Error{Code: "invalid_scope", Description: "offline_access, the only requested scope, cannot be granted: the identity provider issued no refresh token"}
	}
	return scope, nil
}

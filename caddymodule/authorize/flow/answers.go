package flow

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// answers gives clients what they asked for, or asks the person first.
type answers struct {
	*step
	accounts     *people.Accounts
	consents     *consent.Consents
	grants       *token.Grants
	codes        *token.Codes
	tokens       *token.Issuer
	participants *session.Participants
}

// answer goes on with the person who is signed in: on to the client, unless they
// are not the one it means, have to consent first, or have not been asked for
// anything though another app may be behind the redirect URI (RFC 8252 §8.6). Who
// has just posted one of our forms was asked.
func (an *answers) answer(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) {
	ask, err := an.consented(r.Context(), req, signedIn.User)
	unseen := req.isInterceptable() && r.Method != http.MethodPost
	switch {
	case err != nil:
		an.responses.redirectError(w, r, req, err)
	case !req.isFor(signedIn.User.ID):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "login_required", Description: "another person signed in than the one that is asked for"})
	case ask && req.prompts("none"):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "consent_required"})
	case unseen && req.prompts("none"):
		an.responses.redirectError(w, r, req, &oauth2.Error{Code: "interaction_required", Description: "any app on the device could use this redirect_uri, so the person must confirm it"})
	case ask, unseen:
		an.ask(w, r, endpoint.Consent, req, signedIn)
	default:
		an.give(w, r, req, signedIn)
	}
}

// give gives the client what it asked for.
func (an *answers) give(w http.ResponseWriter, r *http.Request, req *authorizationRequest, signedIn *session.SignedIn) {
	g := req.grant(signedIn)
	err := an.grants.Confirm(r.Context(), g)
	var a answerParameters
	if err == nil {
		a, err = an.makeAnswer(r.Context(), req, g)
	}
	if err == nil {
		err = an.participants.Join(r.Context(), g.Session, g.ClientID, g.Has("openid"))
	}
	if err == nil {
		err = req.spent(r.Context())
	}
	an.trail.Record(r.Context(), audit.Event{
		Kind: audit.Authorization, Grant: req.responseType, ClientID: g.ClientID, User: g.User, Scope: g.ScopeText(), Err: err,
	})
	if err != nil {
		an.responses.redirectError(w, r, req, err)
		return
	}
	an.responses.send(w, r, req, req.mode, a)
}

func (an *answers) makeAnswer(ctx context.Context, req *authorizationRequest, g *token.Grant) (answerParameters, error) {
	switch {
	case req.responds("code"):
		code, err := an.codes.Issue(ctx, g)
		return answerParameters{{"code", code}}, err
	case req.responds("token"):
		return an.tokenAnswer(ctx, req, g)
	}
	return an.idTokenAnswer(ctx, g)
}

// grant is what a person who is signed in lets a client have from now on.
func (req *authorizationRequest) grant(by *session.SignedIn) *token.Grant {
	credential := by.User.Credential()
	return &token.Grant{
		Family:         revocation.RandomID(),
		ClientID:       req.client.ID,
		RedirectURI:    req.redirectURI,
		RequestedScope: req.asked,
		Scope:          req.scope,
		User:           by.User.ID,
		SignedInAt:     by.At,
		Session:        by.SID,
		AMR:            by.AMR,
		Provider:       by.Provider,
		Subject:        by.Subject,
		Credential:     credential[:],
		CodeChallenge:  req.codeChallenge,
		Nonce:          req.nonce,

		UserinfoClaims: req.userinfoClaims,
		IDTokenClaims:  req.idTokenClaims,
	}
}

// implicitTokenLifetime is how long an access token lives at most that came by way of
// the browser, where it is left in histories and logs (RFC 6819 §5.1.5.3).
const implicitTokenLifetime = time.Hour

// tokenAnswer is the answer of the token flow (RFC 6749 §4.2.2). The ID token
// comes with it where openid was asked for. The scope is told where it is not the
// one that was asked for.
func (an *answers) tokenAnswer(ctx context.Context, req *authorizationRequest, g *token.Grant) (answerParameters, error) {
	t, err := an.tokens.Issue(ctx, g, min(an.tokens.AccessTokenLifetime, implicitTokenLifetime))
	if err != nil {
		return nil, err
	}
	var a answerParameters
	a.add("id_token", t.ID)
	a.add("access_token", t.Access)
	a.add("token_type", "bearer")
	a.add("expires_in", strconv.FormatInt(int64(t.Lifetime.Seconds()), 10))
	if g.ScopeText() != req.asked {
		a.add("scope", g.ScopeText())
	}
	return a, nil
}

// idTokenAnswer is the answer to response_type id_token (OpenID Connect Core
// §3.2.2.5). There is no access token to ask userinfo with, so the claims that
// the scope asks for are in the ID token (§5.4).
func (an *answers) idTokenAnswer(ctx context.Context, g *token.Grant) (answerParameters, error) {
	user, err := an.accounts.Find(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, &oauth2.Error{Code: "access_denied", Description: "the user is no longer known"}
	}
	g.IDTokenClaims = append(g.IDTokenClaims, people.ClaimsOfScope(g.Scope)...)
	token, err := an.tokens.IssueIDToken(ctx, g, user, "", time.Now())
	var a answerParameters
	a.add("id_token", token)
	return a, err
}

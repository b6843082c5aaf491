package authorize

import (
	"context"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// implicitTokenLifetime is how long an access token lives at most that came by way of
// the browser, where it is left in histories and logs (RFC 6819 §5.1.5.3).
const implicitTokenLifetime = time.Hour

// tokenAnswer is the answer of the token flow (RFC 6749 §4.2.2). The ID token
// comes with it where openid was asked for. The scope is told where it is not the
// one that was asked for.
func (an *answers) tokenAnswer(ctx context.Context, req *authorizationRequest, g *grant) (answerParameters, error) {
	t, err := an.tokens.issue(ctx, g, min(an.tokens.accessTokenLifetime, implicitTokenLifetime))
	if err != nil {
		return nil, err
	}
	var a answerParameters
	a.add("id_token", t.id)
	a.add("access_token", t.access)
	a.add("token_type", "bearer")
	a.add("expires_in", strconv.FormatInt(int64(t.lifetime.Seconds()), 10))
	if g.scope() != req.asked {
		a.add("scope", g.scope())
	}
	return a, nil
}

// idTokenAnswer is the answer to response_type id_token (OpenID Connect Core
// §3.2.2.5). There is no access token to ask userinfo with, so the claims that
// the scope asks for are in the ID token (§5.4).
func (an *answers) idTokenAnswer(ctx context.Context, g *grant) (answerParameters, error) {
	user, err := an.accounts.account(ctx, g.User)
	if err != nil {
		return nil, err
	}
	if user == nil {
		return nil, &oauth2.Error{Code: "access_denied", Description: "the user is no longer known"}
	}
	g.IDTokenClaims = append(g.IDTokenClaims, claimsOfScope(g.Scope)...)
	token, err := an.tokens.issueIDToken(ctx, g, user, "", time.Now())
	var a answerParameters
	a.add("id_token", token)
	return a, err
}

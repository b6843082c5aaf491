package bearer

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// holders knows whom the fhir app's tokens stand for.
type holders interface {
	Holder(ctx context.Context, t tokenclaim.AccessToken) (*tokenclaim.Holder, error)
}

// authenticator tells who sends a request.
type authenticator struct {
	at      address
	guard   *guard.Guard
	holders holders // nil without the fhir app

	hasPolicies bool // which may ask for groups and claims
}

// authenticate verifies the token, if the request needs one, and sets the identity placeholders. Without a valid token it
// empties them, since an earlier handler may have set them.
func (a *authenticator) authenticate(r *http.Request) (token *guard.Token, err error) {
	if !isPublic(r, a.at.path) {
		token, err = a.verify(r)
	}
	(&identity{token: token}).set(r)
	return token, err
}

// verify returns the verified token of a request, or an error and no token.
func (a *authenticator) verify(r *http.Request) (*guard.Token, error) {
	if own := guard.TokenOf(r.Context()); own != nil {
		return own, nil
	}
	raw, err := guard.Bearer(r)
	if err != nil {
		return nil, err
	}
	token, err := a.guard.Verify(r.Context(), raw)
	if err != nil || !a.at.isOwn(token) {
		return token, err
	}
	return a.complete(r.Context(), token)
}

// complete looks up the holder of a token of ours, and refuses the token if what it depends on has ended, such as the
// session.
func (a *authenticator) complete(ctx context.Context, token *guard.Token) (*guard.Token, error) {
	holder, err := a.holders.Holder(ctx, accessToken(token))
	switch {
	case err != nil:
		return nil, guard.Unavailable(err)
	case holder == nil:
		return nil, guard.Withdrawn()
	case holder.FHIRUser == token.FHIRUser && !a.hasPolicies:
		return token, nil
	}
	changed := *token // which other requests share
	changed.FHIRUser, changed.Attributes = holder.FHIRUser, holder.Attributes
	return &changed, nil
}

// accessToken is what the authorization server needs to know of its token.
func accessToken(t *guard.Token) tokenclaim.AccessToken {
	return tokenclaim.AccessToken{
		ID: t.ID, Subject: t.Subject, ClientID: t.ClientID, Scope: t.Scope, Session: t.Session,
		CredentialHash: t.CredentialHash, Provider: t.Provider, ProviderAccount: t.ProviderAccount, ACR: t.ACR,
	}
}

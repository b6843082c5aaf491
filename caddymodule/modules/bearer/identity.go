package bearer

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// authenticate verifies the token, if the request needs one, and sets the identity placeholders. Without a valid token it
// empties them, since an earlier handler may have set them.
func (h *Bearer) authenticate(r *http.Request) (token *guard.Token, err error) {
	if !isPublic(r, h.FHIRBase) {
		token, err = h.verify(r)
	}
	(&identity{token: token}).set(r)
	return token, err
}

// verify returns the verified token of a request, or an error and no token.
func (h *Bearer) verify(r *http.Request) (*guard.Token, error) {
	if own := requester.TokenOf(r.Context()); own != nil {
		return own, nil
	}
	raw, err := guard.Bearer(r)
	if err != nil {
		return nil, err
	}
	token, err := h.guard.Verify(r.Context(), raw)
	if err != nil || !h.isOwn(token) {
		return token, err
	}
	return h.complete(r.Context(), token)
}

// isOwn reports whether a token is of the fhir app's issuer.
func (h *Bearer) isOwn(t *guard.Token) bool { return h.app != nil && t.Issuer == h.issuer }

// complete looks up the holder of a token of ours, and refuses the token if what it depends on has ended, such as the
// session.
func (h *Bearer) complete(ctx context.Context, token *guard.Token) (*guard.Token, error) {
	holder, err := h.app.Server().Holder(ctx, accessToken(token))
	switch {
	case err != nil:
		return nil, guard.Unavailable(err)
	case holder == nil:
		return nil, guard.Withdrawn()
	case holder.FHIRUser == token.FHIRUser:
		return token, nil
	}
	changed := *token // which other requests share
	changed.FHIRUser = holder.FHIRUser
	return &changed, nil
}

// accessToken is what the authorization server needs to know of its token.
func accessToken(t *guard.Token) token.AccessToken {
	return token.AccessToken{
		ID: t.ID, Subject: t.Subject, ClientID: t.ClientID, Scope: t.Scope, Session: t.Session,
		CredentialHash: t.CredentialHash, Provider: t.Provider, ProviderAccount: t.ProviderAccount, ACR: t.ACR,
	}
}

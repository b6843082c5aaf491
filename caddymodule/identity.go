package caddymodule

import (
	"context"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// authenticate verifies the token, if the request needs one, and sets the identity placeholders. Without a valid token it
// empties them, since an earlier handler may have set them.
func (h *Bearer) authenticate(r *http.Request) (token guard.Token, err error) {
	if !h.isPublic(r) {
		token, err = h.verify(r)
	}
	setIdentity(r, token)
	return token, err
}

// verify returns the verified token of a request, or an error and no token.
func (h *Bearer) verify(r *http.Request) (none guard.Token, err error) {
	raw, err := guard.Bearer(r)
	if err != nil {
		return none, err
	}
	token, err := h.guard.Verify(r.Context(), raw)
	if err == nil && h.app != nil && token.Issuer == h.app.Issuer {
		err = h.complete(r.Context(), &token)
	}
	if err != nil {
		return none, err
	}
	return token, nil
}

// complete looks up the holder of a token of ours, and refuses the token if what it depends on has ended, such as the
// session.
func (h *Bearer) complete(ctx context.Context, token *guard.Token) error {
	holder, err := h.app.server.Holder(ctx, accessToken(token))
	switch {
	case err != nil:
		return guard.Unavailable(err)
	case holder == nil:
		return guard.Withdrawn()
	}
	token.FHIRUser = holder.FHIRUser
	return nil
}

// accessToken is what the authorization server needs to know of its token.
func accessToken(t *guard.Token) token.AccessToken {
	return token.AccessToken{
		ID: t.ID, Subject: t.Subject, ClientID: t.ClientID, Scope: t.Scope, Session: t.Session,
		CredentialHash: t.CredentialHash, Provider: t.Provider, ProviderAccount: t.ProviderAccount,
	}
}

func setIdentity(r *http.Request, t guard.Token) {
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	repl.Set("http.auth.user.id", t.Subject)
	repl.Set("http.auth.user.client_id", t.ClientID)
	repl.Set("http.auth.user.scope", t.Scope)
	repl.Set("http.auth.user.patient", t.Patient)
	repl.Set("http.auth.user.fhir_user", t.FHIRUser)
	repl.Set("http.auth.user.issuer", t.Issuer)
}

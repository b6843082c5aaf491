package session

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

// MaxUpstreamSession bounds a provider's sid, in bytes, also in its logout tokens.
const MaxUpstreamSession = 255

// BackchannelLogout ends sessions of people who signed out at their provider.
type BackchannelLogout struct {
	*endpoint.Responder
	Store    store.Store // holds the used logout tokens
	Sessions *Sessions   // that end
}

// Handler is the back-channel logout endpoint for a provider (OpenID Connect Back-Channel
// Logout 1.0 §2.5).
func (b *BackchannelLogout) Handler(p *people.Provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		if err := b.useLogoutToken(w, r, p); err != nil {
			e := *oauth2.AsError(err)
			e.Status = http.StatusBadRequest // whatever failed (§2.8)
			b.Trail.Record(r.Context(), audit.Event{Kind: audit.SignOut, Err: &e})
			b.WriteError(w, r, &e)
		}
	}
}

// useLogoutToken ends the sessions that a logout token names (§2.6, §2.7). The token can be
// used once, but again after a failure.
func (b *BackchannelLogout) useLogoutToken(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	form, err := oauth2.FormParameters(w, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	audit.NoteSessionEndReason(ctx, "signed out at the identity provider")
	token, err := p.Client.VerifyLogoutToken(ctx, form.Get("logout_token"))
	switch {
	case errors.Is(err, upstream.ErrLogoutToken):
		return &oauth2.Error{Code: "invalid_request", Description: "logout_token is none of this provider for this client, or is over", Err: err}
	case err != nil:
		return err
	}
	if err := b.end(ctx, p, token); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// end ends the sessions that a logout token names, and then remembers the token. In this
// order a token that was used has ended them, even if this process dies in between, or the
// store's answer is lost: what fails can be sent again. Of one token that is sent twice at
// once, both end the same.
func (b *BackchannelLogout) end(ctx context.Context, p *people.Provider, token *upstream.LogoutToken) error {
	key := store.Key("logout-token", p.Key+"\x00"+token.ID)
	switch _, err := b.Store.Get(ctx, key); {
	case err == nil:
		return oauth2.InvalidRequest("logout_token was used already")
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	// Only the provider can make us look at all sessions.
	if err := b.Sessions.endUpstream(ctx, p, token); err != nil {
		return err
	}
	err := b.Store.Add(ctx, key, nil, max(time.Until(token.Expiry)+upstream.Leeway, time.Second))
	if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrFull) {
		return nil // the sessions have ended; with a full store the token can be used again
	}
	return err
}

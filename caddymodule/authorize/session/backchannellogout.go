package session

import (
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// MaxUpstreamSession bounds a provider's sid, in bytes, also in its logout tokens.
const MaxUpstreamSession = 255

// BackchannelLogout ends sessions of people who signed out at their provider.
type BackchannelLogout struct {
	*endpoint.Responder
	Store    store.Store // holds the used logout tokens
	Sessions *Sessions   // that end
}

// Serve is the back-channel logout endpoint for a provider (OpenID Connect Back-Channel
// Logout 1.0 §2.5).
func (b *BackchannelLogout) Serve(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	if err := b.useLogoutToken(w, r, p); err != nil {
		e := *oauth2.AsError(err)
		e.Status = http.StatusBadRequest // whatever failed (§2.8)
		b.Trail.Record(r.Context(), audit.Event{Kind: audit.SignOut, Err: &e})
		b.WriteError(w, r, &e)
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
	case errors.Is(err, relyingparty.ErrLogoutToken):
		return &oauth2.Error{Code: "invalid_request", Description: "logout_token is none of this provider for this client, or is over", Err: err}
	case err != nil:
		return err
	}
	// Only the provider can make us look at all sessions.
	lasting := max(time.Until(token.Expiry)+relyingparty.Leeway, time.Second)
	first, err := store.Once(ctx, b.Store, store.Key("logout-token", p.Key+"\x00"+token.ID), lasting, func() error {
		return b.Sessions.EndUpstream(ctx, p, token.Subject, token.Session)
	})
	switch {
	case err != nil:
		return err
	case !first:
		return oauth2.InvalidRequest("logout_token was used already")
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

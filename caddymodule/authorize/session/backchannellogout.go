package session

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// MaxUpstreamSession bounds a provider's sid, in bytes. No logout token has a
// longer one.
const MaxUpstreamSession = 255

// BackchannelLogout takes the word of providers that somebody signed out there.
type BackchannelLogout struct {
	*endpoint.Responder
	Store    store.Store // of the logout tokens that were used
	Sessions *Sessions   // that end
}

// Handler is our back-channel logout endpoint for a provider (OpenID Connect
// Back-Channel Logout 1.0 §2.5): the provider says that somebody signed out there, and
// so they are signed out here.
func (b *BackchannelLogout) Handler(p *people.Provider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		audit.FromContext(r.Context()).Provider = p.Key
		if err := b.takeLogoutToken(w, r, p); err != nil {
			e := *oauth2.AsError(err)
			e.Status = http.StatusBadRequest // whatever failed (§2.8)
			b.Trail.Record(r.Context(), audit.Event{Kind: audit.SignOut, Err: &e})
			b.WriteError(w, r, &e)
		}
	}
}

// takeLogoutToken does what a logout token says, once (§2.6, §2.7). What could not be
// done may be asked for again by the same token.
func (b *BackchannelLogout) takeLogoutToken(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
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
	key := store.Key("logout-token", p.Key+"\x00"+token.ID)
	err = b.Store.Add(ctx, key, nil, max(time.Until(token.Expiry)+upstream.Leeway, time.Second))
	if errors.Is(err, store.ErrExists) {
		return oauth2.InvalidRequest("logout_token was used already")
	}
	if err == nil || errors.Is(err, store.ErrFull) {
		// Where there is no room to remember the token, it ends sessions as often as it
		// comes until it is over: better than a session that goes on.
		err = b.endUpstreamSessions(ctx, p, token)
	}
	if err != nil {
		return errors.Join(err, b.Store.Delete(context.WithoutCancel(ctx), key))
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// endUpstreamSessions ends the sessions that began with what a logout token names. It
// takes time in proportion to all that the store holds, which nobody but the provider
// can cause.
func (b *BackchannelLogout) endUpstreamSessions(ctx context.Context, p *people.Provider, token *upstream.LogoutToken) error {
	_, err := b.Sessions.endEach(ctx, func(stored *Session) bool { return stored.beganWith(p, token) })
	return err
}

// beganWith says whether a logout token is about the sign-in that a session began
// with: by sid, by sub, or by both. A session whose ID token told no sid is any of the
// person's.
func (s *Session) beganWith(p *people.Provider, token *upstream.LogoutToken) bool {
	sameSubject := token.Subject == s.UpstreamSubject
	sameSession := token.Session == s.UpstreamSession
	switch {
	case s.Provider != p.Key || token.Subject != "" && !sameSubject:
		return false
	case token.Session == "":
		return true
	}
	return sameSession || s.UpstreamSession == "" && token.Subject != ""
}

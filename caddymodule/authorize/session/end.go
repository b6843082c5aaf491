package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// EndByID ends the session with a sid and notifies its participants. It returns how many
// it ended: none if it had ended before. The sid proves nothing: call it for operators, or once
// it is known whose the session is.
func (s *Sessions) EndByID(ctx context.Context, sid string) (int, error) {
	stored, err := s.Find(ctx, sid)
	if errors.Is(err, ErrUnreadable) {
		stored, err = unreadable(sid, "", err), nil
	}
	if stored == nil || err != nil {
		return 0, err
	}
	return 1, s.End(ctx, stored)
}

// EndByUser ends all sessions of a user, and returns how many.
func (s *Sessions) EndByUser(ctx context.Context, user string) (int, error) {
	return s.endOf(ctx, user, "")
}

// endOf ends all sessions of a user but the one with a sid, and returns how many.
func (s *Sessions) endOf(ctx context.Context, user, except string) (ended int, err error) {
	return each(s.ofUser(ctx, user), func(stored *Session) (bool, error) {
		if stored.SID == except {
			return false, nil
		}
		return true, s.End(ctx, stored)
	})
}

// each calls do for sessions, and returns for how many it did something and succeeded. It continues after an error.
func each(sessions iter.Seq2[*Session, error], do func(*Session) (bool, error)) (done int, err error) {
	var errs []error
	for stored, err := range sessions {
		if err == nil {
			var did bool
			if did, err = do(stored); did && err == nil {
				done++
			}
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// End ends a session and all that depends on it. It first reads whom to notify: once the
// session is gone, a failure could not be made good.
//
// All that it needs is the sid. If the record cannot be read, and nobody else said whose the
// session is, the notices have no sub (Back-Channel Logout §2.4 asks for sub or sid), and the entry
// that voids what clients got is not counted among that person's.
func (s *Sessions) End(ctx context.Context, stored *Session) error {
	participants, err := s.Participants.list(ctx, stored.SID)
	if err != nil {
		return err
	}
	err = s.Revocations.EndSession(ctx, stored.SID, []string{Key(stored.SID)}, append(keysOf(participants), Key(stored.SID)))
	if err != nil {
		return err
	}
	if stored.User != "" {
		s.Revocations.LimitEndedSessions(ctx, stored.User, stored.SID)
	}
	s.recordEnd(ctx, stored)
	s.Notifier.notify(ctx, stored, participants)
	return nil
}

// recordEnd records that a session has ended.
func (s *Sessions) recordEnd(ctx context.Context, stored *Session) {
	reason := audit.SessionEndReason(ctx)
	if stored.IsUnreadable() {
		reason += "; " + ErrUnreadable.Error()
		s.Logger.ErrorContext(ctx, "ended a session that could not be read", "user", stored.User, "error", stored.unreadable)
	}
	s.Trail.Record(ctx, audit.Event{Kind: audit.SignOut, User: stored.User, Person: stored.Upstream(), Reason: reason})
}

// delete also frees the room reserved for the cutoff; if that fails, it expires.
func (s *Sessions) delete(ctx context.Context, sid string) error {
	err := s.Durable.Delete(ctx, Key(sid))
	if err == nil && s.Durable != s.Store {
		_ = s.Store.Delete(ctx, Key(sid))
	}
	return err
}

// RemoveClients removes all clients from a person's sessions, and notifies them.
func (s *Sessions) RemoveClients(ctx context.Context, user string) error {
	_, err := each(s.ofUser(ctx, user), func(stored *Session) (bool, error) { return true, s.removeFrom(ctx, stored) })
	return err
}

// RemoveClient removes a client from the sessions of a user, or of all if user is empty,
// and notifies it.
func (s *Sessions) RemoveClient(ctx context.Context, user, clientID string) error {
	client, err := s.Participants.Clients.Find(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	sessions := allSessions(ctx, s.Durable)
	if user != "" {
		sessions = s.ofUser(ctx, user)
	}
	_, err = each(sessions, func(stored *Session) (bool, error) { return true, s.removeFrom(ctx, stored, client.ID) })
	return err
}

// removeFrom removes clients from a session, or all of them, and notifies them.
func (s *Sessions) removeFrom(ctx context.Context, stored *Session, clients ...string) error {
	found, err := s.Participants.list(ctx, stored.SID, clients...)
	if err != nil {
		return err
	}
	if err := s.Participants.remove(ctx, found); err != nil {
		// They expire, and mean nothing to a client without a grant.
		s.Logger.WarnContext(ctx, "clients not removed from a session", "error", err)
	}
	s.Notifier.notify(ctx, stored, found)
	return nil
}

const (
	// signingIn is longer than it takes from a provider's ID token to the session: the page for a second factor may be
	// in between.
	signingIn = 20 * time.Minute

	// noSession stands for the sid of sessions whose ID token had none.
	noSession = "\x00"
)

// EndUpstream ends the sessions that began with a subject's sign-in at a provider, or with one session there; one of the
// two may be empty. Those of sign-ins that are under way are not stored ([Sessions.NoteEnded]).
func (s *Sessions) EndUpstream(ctx context.Context, p *people.Provider, subject, session string) error {
	if subject == "" && session == "" {
		return nil // which would be everybody
	}
	if err := s.NoteEnded(ctx, p, subject, session); err != nil {
		return err
	}
	_, err := each(s.ofUpstream(ctx, p, subject, session), func(stored *Session) (bool, error) { return true, s.End(ctx, stored) })
	return err
}

// NoteEnded notes that a provider has ended what it told until now of a subject or one session there. Call it before
// looking for sessions: whoever stores one meanwhile finds the note, or the session is found.
func (s *Sessions) NoteEnded(ctx context.Context, p *people.Provider, subject, session string) error {
	keys := []string{upstreamEndKey(p.Key, subject, session)}
	if subject != "" && session != "" {
		keys = append(keys, upstreamEndKey(p.Key, subject, noSession))
	}
	now, err := s.Now().MarshalText()
	var calls []*store.Call
	for _, key := range keys {
		calls = append(calls, &store.Call{Op: store.Put, Key: key, Value: now, TTL: signingIn})
	}
	if err == nil {
		err = store.Do(ctx, store.In(s.Durable, calls...))
	}
	if errors.Is(err, store.ErrFull) { // nor is there room for a session
		s.Logger.WarnContext(ctx, "that an identity provider has ended sign-ins could not be noted", "idp", p.Key, "error", err)
		return nil
	}
	return err
}

func upstreamEndKey(provider, subject, session string) string {
	return store.Key("upstream-ended", fmt.Sprintf("%s %q %q", provider, subject, session))
}

// endings returns the calls that read whether a provider has ended the sign-in of a session; none if it began here.
func (s *Session) endings() (calls []*store.Call) {
	if s.Provider == "" {
		return nil
	}
	sid := cmp.Or(s.UpstreamSession, noSession)
	for _, key := range []string{
		upstreamEndKey(s.Provider, s.UpstreamSubject, ""), upstreamEndKey(s.Provider, s.UpstreamSubject, sid), upstreamEndKey(s.Provider, "", sid),
	} {
		calls = append(calls, &store.Call{Op: store.Get, Key: key})
	}
	return calls
}

// endedBy reports whether one of the endings that were read is of this sign-in.
func (s *Session) endedBy(endings []*store.Call) bool {
	for _, found := range endings {
		var at time.Time
		if found.Value != nil && (at.UnmarshalText(found.Value) != nil || !s.UpstreamAt.After(at)) {
			return true
		}
	}
	return false
}

// beganWith reports whether a provider names the session's sign-in, by subject, session or
// both. A session without one there is ended by any word about its person.
func (s *Session) beganWith(p *people.Provider, subject, session string) bool {
	if s.Provider != p.Key || subject != "" && subject != s.UpstreamSubject {
		return false
	}
	return session == "" || session == s.UpstreamSession || s.UpstreamSession == "" && subject != ""
}

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

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

// EndByID ends the session with a sid and notifies its clients. It returns the number of ended sessions: 0 if the session had
// already ended, otherwise 1. The sid does not prove possession of the session: callers must be operators or have authenticated
// the session's user.
func (s *Sessions) EndByID(ctx context.Context, sid string) (int, error) {
	stored, err := s.Find(ctx, sid)
	if errors.Is(err, ErrUnreadable) {
		stored, err = newUnreadableSession(sid, "", err), nil
	}
	if stored == nil || err != nil {
		return 0, err
	}
	return 1, s.End(ctx, stored)
}

// EndByUser ends all sessions of a user and returns how many it ended.
func (s *Sessions) EndByUser(ctx context.Context, user string) (int, error) {
	return s.endUserSessions(ctx, user, "")
}

// endUserSessions ends all sessions of a user, except the one with the sid except, and returns how many it ended.
func (s *Sessions) endUserSessions(ctx context.Context, user, except string) (ended int, err error) {
	return forEachSession(s.userSessions(ctx, user), func(stored *Session) (bool, error) {
		if stored.SID == except {
			return false, nil
		}
		return true, s.End(ctx, stored)
	})
}

// forEachSession calls do for every session and continues after errors. done is how often do returned true without an error.
func forEachSession(sessions iter.Seq2[*Session, error], do func(*Session) (bool, error)) (done int, err error) {
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

// End ends a session and voids the grants issued in it. It reads the participants first, because they could not be notified if
// reading failed after the session was deleted.
//
// Only the sid is required. If the record is unreadable and the user unknown, logout tokens contain no sub (Back-Channel Logout
// §2.4 requires sub or sid), and the session's cutoff is not added to the user's limited list.
func (s *Sessions) End(ctx context.Context, stored *Session) error {
	participants, err := s.Participants.listParticipants(ctx, stored.SID)
	if err != nil {
		return err
	}
	err = s.Revocations.EndSession(ctx, stored.SID, []string{Key(stored.SID)}, append(participantKeys(participants), Key(stored.SID)))
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

// recordEnd records the end of a session in the audit log.
func (s *Sessions) recordEnd(ctx context.Context, stored *Session) {
	reason := audit.SessionEndReason(ctx)
	if stored.IsUnreadable() {
		reason += "; " + ErrUnreadable.Error()
		s.Logger.ErrorContext(ctx, "unreadable session deleted", "user", stored.User, "error", stored.readErr)
	}
	s.Trail.Record(ctx, audit.Event{Kind: audit.KindSignOut, User: stored.User, Person: stored.UpstreamPerson(), Reason: reason})
}

// delete also deletes the entry that reserves space for the cutoff. If that fails, the reservation remains until it expires.
func (s *Sessions) delete(ctx context.Context, sid string) error {
	err := s.Durable.Delete(ctx, Key(sid))
	if err == nil && s.Durable != s.Store {
		_ = s.Store.Delete(ctx, Key(sid))
	}
	return err
}

// RemoveClients removes all clients from a user's sessions and notifies them.
func (s *Sessions) RemoveClients(ctx context.Context, user string) error {
	_, err := forEachSession(s.userSessions(ctx, user), func(stored *Session) (bool, error) { return true, s.removeParticipants(ctx, stored) })
	return err
}

// RemoveClient removes a client from the sessions of a user, or from all sessions if user is empty, and notifies it.
func (s *Sessions) RemoveClient(ctx context.Context, user, clientID string) error {
	client, err := s.Participants.Clients.Find(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	sessions := allSessions(ctx, s.Durable)
	if user != "" {
		sessions = s.userSessions(ctx, user)
	}
	_, err = forEachSession(sessions, func(stored *Session) (bool, error) { return true, s.removeParticipants(ctx, stored, client.ID) })
	return err
}

// removeParticipants removes the given clients, or all clients if none are given, from a session and notifies them.
func (s *Sessions) removeParticipants(ctx context.Context, stored *Session, clients ...string) error {
	found, err := s.Participants.listParticipants(ctx, stored.SID, clients...)
	if err != nil {
		return err
	}
	if err := s.Participants.remove(ctx, found); err != nil {
		// Participants that could not be removed expire. They have no effect, because the client's grants are revoked.
		s.Logger.WarnContext(ctx, "failed to remove clients from session", "error", err)
	}
	s.Notifier.notify(ctx, stored, found)
	return nil
}

const (
	// maxSignInTime is longer than the time from when a provider issues an ID token until the session is stored, including the
	// page for a second factor.
	maxSignInTime = 20 * time.Minute

	// noUpstreamSID stands for the sid of sessions with an ID token that contained none.
	noUpstreamSID = "\x00"
)

// EndUpstreamSessions ends the sessions that started with a sign-in of a subject at a provider, or in one session at the
// provider. Either subject or session may be "". [Sessions.RecordUpstreamLogout] handles sign-ins in progress.
func (s *Sessions) EndUpstreamSessions(ctx context.Context, p *people.Provider, subject, session string) error {
	if subject == "" && session == "" {
		return nil // would match everyone
	}
	if err := s.RecordUpstreamLogout(ctx, p, subject, session); err != nil {
		return err
	}
	_, err := forEachSession(s.upstreamSessions(ctx, p, subject, session), func(stored *Session) (bool, error) { return true, s.End(ctx, stored) })
	return err
}

// RecordUpstreamLogout records that a provider has ended all previous sign-ins of a subject or session. Call it before
// searching for sessions: then, a session that is stored concurrently is either found by the search or detects the record.
func (s *Sessions) RecordUpstreamLogout(ctx context.Context, p *people.Provider, subject, session string) error {
	keys := []string{upstreamLogoutKey(p.Key, subject, session)}
	if subject != "" && session != "" {
		keys = append(keys, upstreamLogoutKey(p.Key, subject, noUpstreamSID))
	}
	now, err := s.Now().MarshalText()
	var calls []*store.Call
	for _, key := range keys {
		calls = append(calls, &store.Call{Op: store.Put, Key: key, Value: now, TTL: maxSignInTime})
	}
	if err == nil {
		err = store.Do(ctx, store.NewStep(s.Durable, calls...))
	}
	if errors.Is(err, store.ErrFull) { // if the store is full, new sessions cannot be stored either
		s.Logger.WarnContext(ctx, "failed to store back-channel logout of identity provider", "idp", p.Key, "error", err)
		return nil
	}
	return err
}

func upstreamLogoutKey(provider, subject, session string) string {
	return store.Key("upstream-ended", fmt.Sprintf("%s %q %q", provider, subject, session))
}

// upstreamLogoutCalls returns the calls that read whether the provider has ended the session's sign-in. There are none for
// password sign-ins.
func (s *Session) upstreamLogoutCalls() (calls []*store.Call) {
	if s.Provider == "" {
		return nil
	}
	sid := cmp.Or(s.UpstreamSession, noUpstreamSID)
	for _, key := range []string{
		upstreamLogoutKey(s.Provider, s.UpstreamSubject, ""), upstreamLogoutKey(s.Provider, s.UpstreamSubject, sid), upstreamLogoutKey(s.Provider, "", sid),
	} {
		calls = append(calls, &store.Call{Op: store.Get, Key: key})
	}
	return calls
}

// wasEndedUpstream reports whether one of the logouts read by logoutCalls applies to this sign-in.
func (s *Session) wasEndedUpstream(logoutCalls []*store.Call) bool {
	for _, found := range logoutCalls {
		var at time.Time
		if found.Value != nil && (at.UnmarshalText(found.Value) != nil || !s.UpstreamRequestedAt.After(at)) {
			return true
		}
	}
	return false
}

// matchesUpstream reports whether a provider refers to the session's sign-in, by subject, by session or by both. If the ID
// token contained no sid, the subject is sufficient.
func (s *Session) matchesUpstream(p *people.Provider, subject, session string) bool {
	if s.Provider != p.Key || subject != "" && subject != s.UpstreamSubject {
		return false
	}
	return session == "" || session == s.UpstreamSession || s.UpstreamSession == "" && subject != ""
}

// MaxUpstreamSIDBytes is the maximum length in bytes of a provider's sid, including in its logout tokens.
const MaxUpstreamSIDBytes = 255

// BackchannelLogout ends sessions of people who have signed out at their identity provider.
type BackchannelLogout struct {
	*endpoint.Responder
	Store    store.Store // store for used logout tokens
	Sessions *Sessions   // sessions of all users
}

// Serve handles the back-channel logout endpoint for a provider (OpenID Connect Back-Channel Logout 1.0 §2.5).
func (b *BackchannelLogout) Serve(w http.ResponseWriter, r *http.Request, p *people.Provider) {
	if err := b.handleLogoutToken(w, r, p); err != nil {
		e := *oauth2.AsError(err)
		e.Status = http.StatusBadRequest // required for every error (Back-Channel Logout §2.8)
		b.Trail.Record(r.Context(), audit.Event{Kind: audit.KindSignOut, Err: &e})
		b.WriteError(w, r, &e)
	}
}

// handleLogoutToken ends the sessions that a logout token refers to (Back-Channel Logout §2.6, §2.7). A token can be used only
// once, but again after an error.
func (b *BackchannelLogout) handleLogoutToken(w http.ResponseWriter, r *http.Request, p *people.Provider) error {
	form, err := oauth2.ReadCheckedForm(w, r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	audit.RecordSessionEndReason(ctx, "signed out at the identity provider")
	token, err := p.Client.VerifyLogoutToken(ctx, form.Get("logout_token"))
	switch {
	case errors.Is(err, relyingparty.ErrLogoutToken):
		return &oauth2.Error{Code: "invalid_request", Description: "logout_token is invalid, expired, or not issued by this provider for this client", Err: err}
	case err != nil:
		return err
	}
	// The token has been verified: only the provider can cause a search through all sessions.
	ttl := max(time.Until(token.Expiry)+relyingparty.Leeway, time.Second)
	isFirstUse, err := store.RunOnce(ctx, b.Store, store.Key("logout-token", p.Key+"\x00"+token.ID), ttl, func() error {
		return b.Sessions.EndUpstreamSessions(ctx, p, token.Subject, token.Session)
	})
	switch {
	case err != nil:
		return err
	case !isFirstUse:
		return oauth2.InvalidRequest("logout_token has already been used")
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

package session

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// EndByID ends the session with a sid and notifies its participants. It returns how many
// it ended: none if it had ended before.
func (s *Sessions) EndByID(ctx context.Context, sid string) (int, error) {
	stored, err := s.Find(ctx, sid)
	if stored == nil || err != nil {
		return 0, err
	}
	return 1, s.End(ctx, stored)
}

// EndByUser ends all sessions of a user, and returns how many.
func (s *Sessions) EndByUser(ctx context.Context, user string) (int, error) {
	return s.endEach(ctx, func(stored *Session) bool { return stored.User == user })
}

func (s *Sessions) endEach(ctx context.Context, match func(*Session) bool) (int, error) {
	return s.each(ctx, match, func(stored *Session) error { return s.End(ctx, stored) })
}

// each calls do for all matching sessions, and returns how many succeeded.
func (s *Sessions) each(ctx context.Context, match func(*Session) bool, do func(*Session) error) (done int, err error) {
	var errs []error
	for stored, err := range s.all(ctx) {
		if err == nil && match(stored) {
			if err = do(stored); err == nil {
				done++
			}
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// all yields all sessions, or the errors of reading them.
func (s *Sessions) all(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		keys, err := s.Durable.List(ctx, Key(""))
		if err != nil && !yield(nil, err) {
			return
		}
		for _, key := range keys {
			stored, err := s.Find(ctx, strings.TrimPrefix(key, Key("")))
			if (stored != nil || err != nil) && !yield(stored, err) {
				return
			}
		}
	}
}

// End ends a session and all that depends on it. It first reads whom to notify: once the
// session is gone, a failure could not be made good.
func (s *Sessions) End(ctx context.Context, stored *Session) error {
	participants, err := s.Participants.list(ctx, stored.SID)
	if err != nil {
		return err
	}
	if err := s.revoke(ctx, stored); err != nil {
		return err
	}
	s.Trail.Record(ctx, audit.Event{Kind: audit.SignOut, User: stored.User, Provider: stored.Provider, Reason: audit.SessionEndReason(ctx)})
	s.Notifier.notify(ctx, stored, participants)
	return nil
}

// revoke voids what was issued in a session, and deletes it. If the store is full, deleting
// the session makes room for the cutoff, so that people can always sign out.
//
// The cutoff lies in the future, to cover what is issued until the session is deleted. No
// other session has its sid.
func (s *Sessions) revoke(ctx context.Context, stored *Session) error {
	cutOff := func() error {
		return s.Revocations.CutOffAt(ctx, time.Now().Add(endingTime), revocation.SessionCutoff(stored.SID))
	}
	err := cutOff()
	full := errors.Is(err, store.ErrFull)
	if err == nil || full {
		err = s.delete(ctx, stored.SID)
	}
	if err == nil && full {
		err = cutOff()
	}
	if err == nil {
		s.Revocations.LimitEndedSessions(ctx, stored.User, stored.SID)
	}
	return err
}

// delete also frees the room reserved for the cutoff; if that fails, it expires.
func (s *Sessions) delete(ctx context.Context, sid string) error {
	err := s.Durable.Delete(ctx, Key(sid))
	if err == nil && s.Durable != s.Store {
		_ = s.Store.Delete(ctx, Key(sid))
	}
	return err
}

// reserveCutoff reserves room for a session's cutoff, if the session itself is in another
// store.
func (s *Sessions) reserveCutoff(ctx context.Context, sid string) error {
	if s.Durable == s.Store {
		return nil
	}
	return s.Store.Put(ctx, Key(sid), nil, s.Lifetime)
}

const (
	// maxSessions is how many sessions a person can have. A ward may share an account.
	maxSessions = 1000

	// endingTime is longer than it takes to end a session.
	endingTime = time.Minute
)

// listOf is the list of a person's sessions.
func (s *Sessions) listOf(user string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("sessions", user), Max: maxSessions, TTL: s.Lifetime}
}

// limit ends a person's oldest sessions beyond maxSessions. The person is signed in by then,
// so a failure is only logged.
func (s *Sessions) limit(ctx context.Context, session *Session) {
	dropped, err := s.listOf(session.User).Add(ctx, session.SID)
	audit.NoteSessionEndReason(ctx, "the person has too many newer ones")
	for _, sid := range dropped {
		_, endErr := s.EndByID(ctx, sid)
		err = errors.Join(err, endErr)
	}
	if err != nil {
		s.Logger.ErrorContext(ctx, "sessions of a person not counted", "user", session.User, "error", err)
	}
}

// CheckActive returns login_required for a session that has ended. Call it after setting a
// grant's time: a session that ends later than that voids the grant.
func (s *Sessions) CheckActive(ctx context.Context, sid string) error {
	session, err := s.Find(ctx, sid)
	if err == nil && session == nil {
		err = &oauth2.Error{Code: "login_required", Description: "the person has signed out meanwhile"}
	}
	return err
}

// RemoveClients removes all clients from a person's sessions, and notifies them.
func (s *Sessions) RemoveClients(ctx context.Context, user string) error {
	match := func(stored *Session) bool { return stored.User == user }
	_, err := s.each(ctx, match, func(stored *Session) error {
		found, err := s.Participants.list(ctx, stored.SID)
		if err == nil {
			s.Notifier.notify(ctx, stored, found)
		}
		return err
	})
	return err
}

// RemoveClient removes a client from the sessions of a user, or of all if user is empty,
// and notifies it.
func (s *Sessions) RemoveClient(ctx context.Context, user, clientID string) error {
	client, err := s.Participants.Clients.Find(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	match := func(stored *Session) bool { return user == "" || stored.User == user }
	_, err = s.each(ctx, match, func(stored *Session) error {
		found, err := s.Participants.find(ctx, stored.SID, client)
		if err == nil {
			s.Notifier.notify(ctx, stored, found)
		}
		return err
	})
	return err
}

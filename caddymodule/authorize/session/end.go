package session

import (
	"context"
	"errors"
	"iter"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
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
	sessions := (records{s.Durable}).all(ctx)
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

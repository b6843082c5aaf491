package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Info describes a sign-in that lasts, to those who run the server.
type Info struct {
	// ID is the sid that clients know the session by.
	ID string

	// User is the sub of the person.
	User string

	// Since is when the session began.
	Since time.Time

	// SignedInAt is when the person last proved who they are in it.
	SignedInAt time.Time

	// Provider is the key of the identity provider they last did so by; empty
	// where their password was checked here.
	Provider string

	// Clients are the ids of the clients that got a code or tokens in it.
	Clients []string

	// Address is the IP address they last signed in from.
	Address string

	// UserAgent is the browser they last did so with, as it calls itself: not
	// more than 200 bytes, and for display alone.
	UserAgent string
}

// List lists the sessions of a user, or all where user is empty. Those that
// their user's configuration ended (see doc.go) are not among them. It takes time
// in proportion to all that the store holds.
func (s *Sessions) List(ctx context.Context, user string) ([]Info, error) {
	keys, err := s.Durable.List(ctx, Key(""))
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, key := range keys {
		stored, err := s.Read(ctx, strings.TrimPrefix(key, Key("")))
		if err != nil {
			return nil, err
		}
		if stored == nil || user != "" && stored.User != user {
			continue
		}
		info, err := s.info(ctx, stored)
		if err != nil {
			return nil, err
		}
		if info != nil {
			list = append(list, *info)
		}
	}
	return list, nil
}

// info describes a session, or is nil where it signs nobody in any more.
func (s *Sessions) info(ctx context.Context, stored *Session) (*Info, error) {
	user, err := s.User(ctx, stored)
	if user == nil || err != nil {
		return nil, err
	}
	info := &Info{
		ID: stored.SID, User: stored.User, Since: stored.Began, SignedInAt: stored.At,
		Provider: stored.Provider, Address: stored.Address, UserAgent: stored.UserAgent,
	}
	notes, err := s.Participants.clientsOf(ctx, stored.SID)
	for _, note := range notes {
		info.Clients = append(info.Clients, note.client.ID)
	}
	return info, err
}

// EndSession ends a session by its sid, and tells the clients that asked to be
// told (OpenID Connect Back-Channel Logout 1.0). It returns how many sessions it ended:
// that it ended before is no error.
func (s *Sessions) EndSession(ctx context.Context, sid string) (int, error) {
	stored, err := s.Read(ctx, sid)
	if stored == nil || err != nil {
		return 0, err
	}
	return 1, s.End(ctx, stored)
}

// EndSessions ends all sessions of a user, as [Server.EndSession] does, and returns how
// many there were.
func (s *Sessions) EndSessions(ctx context.Context, user string) (int, error) {
	return s.endEach(ctx, func(stored *Session) bool { return stored.User == user })
}

// endEach ends as many as it can of the sessions that are meant.
func (s *Sessions) endEach(ctx context.Context, meant func(*Session) bool) (int, error) {
	return s.eachSession(ctx, meant, func(stored *Session) error { return s.End(ctx, stored) })
}

// eachSession does something with as many as it can of the sessions that are meant, and
// returns with how many.
func (s *Sessions) eachSession(ctx context.Context, meant func(*Session) bool, do func(*Session) error) (done int, err error) {
	keys, err := s.Durable.List(ctx, Key(""))
	errs := []error{err}
	for _, key := range keys {
		stored, err := s.Read(ctx, strings.TrimPrefix(key, Key("")))
		if err == nil && stored != nil && meant(stored) {
			if err = do(stored); err == nil {
				done++
			}
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// End forgets a session, and with it all that hangs on it. Who is to be told is
// read first: once the session is gone, nobody could try again.
func (s *Sessions) End(ctx context.Context, stored *Session) error {
	notes, err := s.Participants.clientsOf(ctx, stored.SID)
	if err != nil {
		return err
	}
	if err := s.forgetSession(ctx, stored); err != nil {
		return err
	}
	s.Trail.Record(ctx, audit.Event{Kind: audit.SignOut, User: stored.User, Provider: stored.Provider, Reason: audit.SessionEndReason(ctx)})
	s.Notifier.tellClients(ctx, stored, notes)
	return nil
}

// forgetSession voids what a session gave, and removes it. In a full store the session
// makes room for that, so that nobody must stay signed in.
//
// The cutoff is in the future, for what is given at this very moment, before the session
// is removed. No other session has its sid.
func (s *Sessions) forgetSession(ctx context.Context, stored *Session) error {
	cutOff := func() error {
		return s.Revocations.CutOffAt(ctx, time.Now().Add(endingTime), revocation.SessionCutoff(stored.SID))
	}
	err := cutOff()
	full := errors.Is(err, store.ErrFull)
	if err == nil || full {
		err = s.deleteSession(ctx, stored.SID)
	}
	if err == nil && full {
		err = cutOff()
	}
	if err == nil {
		s.Revocations.LimitEndedSessions(ctx, stored.User, stored.SID)
	}
	return err
}

// deleteSession also removes what reserved room for the session's cutoff. If that fails, it
// expires.
func (s *Sessions) deleteSession(ctx context.Context, sid string) error {
	err := s.Durable.Delete(ctx, Key(sid))
	if err == nil && s.Durable != s.Store {
		_ = s.Store.Delete(ctx, Key(sid))
	}
	return err
}

// reserveCutoff keeps room for the cutoff of a session in the store, where the session
// itself is not.
func (s *Sessions) reserveCutoff(ctx context.Context, sid string) error {
	if s.Durable == s.Store {
		return nil
	}
	return s.Store.Put(ctx, Key(sid), nil, s.Lifetime)
}

// maxSessions is how many browsers one is signed in at, far more than people in order
// need: the store is there for all, and who is let in could fill it. A ward may share an
// account.
const maxSessions = 1000

// endingTime is longer than it takes to end a session.
const endingTime = time.Minute

// keepSession makes room for a person's new session. They are signed in by then, so
// that there is no room made keeps nobody out.
func (s *Sessions) keepSession(ctx context.Context, session *Session) {
	list := store.RecentList{Store: s.Durable, Key: store.Key("sessions", session.User), Max: maxSessions, TTL: s.Lifetime}
	dropped, err := list.Add(ctx, session.SID)
	audit.NoteSessionEndReason(ctx, "the person has too many newer ones")
	for _, sid := range dropped {
		_, endErr := s.EndSession(ctx, sid)
		err = errors.Join(err, endErr)
	}
	if err != nil {
		s.Logger.ErrorContext(ctx, "sessions of a person not counted", "user", session.User, "error", err)
	}
}

// StillSignedIn refuses a session that ended while a request of it was under way. It comes
// after a grant has got its time: a session that ends later makes the grant void.
func (s *Sessions) StillSignedIn(ctx context.Context, sid string) error {
	session, err := s.Read(ctx, sid)
	if err == nil && session == nil {
		err = &oauth2.Error{Code: "login_required", Description: "the person has signed out meanwhile"}
	}
	return err
}

// Leave takes a client out of the sessions of a user, or of all, and tells it.
func (s *Sessions) Leave(ctx context.Context, user, clientID string) error {
	client, err := s.Clients.Find(ctx, clientID)
	if client == nil || err != nil {
		return err
	}
	meant := func(stored *Session) bool { return user == "" || stored.User == user }
	_, err = s.eachSession(ctx, meant, func(stored *Session) error {
		notes, err := s.Participants.noteOf(ctx, stored.SID, client)
		if err != nil {
			return err
		}
		s.Notifier.tellClients(ctx, stored, notes)
		return nil
	})
	return err
}

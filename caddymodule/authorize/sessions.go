package authorize

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// SessionInfo describes a sign-in that lasts, to those who run the server.
type SessionInfo struct {
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

// Sessions lists the sessions of a user, or all where user is empty. Those that
// their user's configuration ended (see doc.go) are not among them. It takes time
// in proportion to all that the store holds.
func (s *sessions) Sessions(ctx context.Context, user string) ([]SessionInfo, error) {
	keys, err := s.durable.List(ctx, sessionKey(""))
	if err != nil {
		return nil, err
	}
	var list []SessionInfo
	for _, key := range keys {
		stored, err := s.readSession(ctx, strings.TrimPrefix(key, sessionKey("")))
		if err != nil {
			return nil, err
		}
		if stored == nil || user != "" && stored.User != user {
			continue
		}
		info, err := s.sessionInfo(ctx, stored)
		if err != nil {
			return nil, err
		}
		if info != nil {
			list = append(list, *info)
		}
	}
	return list, nil
}

// sessionInfo describes a session, or is nil where it signs nobody in any more.
func (s *sessions) sessionInfo(ctx context.Context, stored *storedSession) (*SessionInfo, error) {
	user, err := s.sessionUser(ctx, stored)
	if user == nil || err != nil {
		return nil, err
	}
	info := &SessionInfo{
		ID: stored.sid, User: stored.User, Since: stored.Began, SignedInAt: stored.At,
		Provider: stored.Provider, Address: stored.Address, UserAgent: stored.UserAgent,
	}
	notes, err := s.participants.clientsOf(ctx, stored.sid)
	for _, note := range notes {
		info.Clients = append(info.Clients, note.client.ID)
	}
	return info, err
}

// EndSession ends a session by its sid, and tells the clients that asked to be
// told (OpenID Connect Back-Channel Logout 1.0). It returns how many sessions it ended:
// that it ended before is no error.
func (s *sessions) EndSession(ctx context.Context, sid string) (int, error) {
	stored, err := s.readSession(ctx, sid)
	if stored == nil || err != nil {
		return 0, err
	}
	return 1, s.endSession(ctx, stored)
}

// EndSessions ends all sessions of a user, as [Server.EndSession] does, and returns how
// many there were.
func (s *sessions) EndSessions(ctx context.Context, user string) (int, error) {
	return s.endSessions(ctx, func(stored *storedSession) bool { return stored.User == user })
}

// endSessions ends as many as it can of the sessions that are meant.
func (s *sessions) endSessions(ctx context.Context, meant func(*storedSession) bool) (int, error) {
	return s.eachSession(ctx, meant, func(stored *storedSession) error { return s.endSession(ctx, stored) })
}

// eachSession does something with as many as it can of the sessions that are meant, and
// returns with how many.
func (s *sessions) eachSession(ctx context.Context, meant func(*storedSession) bool, do func(*storedSession) error) (done int, err error) {
	keys, err := s.durable.List(ctx, sessionKey(""))
	errs := []error{err}
	for _, key := range keys {
		stored, err := s.readSession(ctx, strings.TrimPrefix(key, sessionKey("")))
		if err == nil && stored != nil && meant(stored) {
			if err = do(stored); err == nil {
				done++
			}
		}
		errs = append(errs, err)
	}
	return done, errors.Join(errs...)
}

// endSession forgets a session, and with it all that hangs on it. Who is to be told is
// read first: once the session is gone, nobody could try again.
func (s *sessions) endSession(ctx context.Context, stored *storedSession) error {
	notes, err := s.participants.clientsOf(ctx, stored.sid)
	if err != nil {
		return err
	}
	if err := s.forgetSession(ctx, stored); err != nil {
		return err
	}
	s.trail.record(ctx, audit.Event{Kind: audit.SignOut, User: stored.User, Provider: stored.Provider, Reason: endingOf(ctx)})
	s.notifier.tellClients(ctx, stored, notes)
	return nil
}

// forgetSession voids what a session gave, and removes it. In a full store the session
// makes room for that, so that nobody must stay signed in.
//
// The cutoff is in the future, for what is given at this very moment, before the session
// is removed. No other session has its sid.
func (s *sessions) forgetSession(ctx context.Context, stored *storedSession) error {
	cutOff := func() error {
		return s.revocations.cutOffAt(ctx, time.Now().Add(endingTime), sessionCutoff(stored.sid))
	}
	err := cutOff()
	full := errors.Is(err, store.ErrFull)
	if err == nil || full {
		err = s.deleteSession(ctx, stored.sid)
	}
	if err == nil && full {
		err = cutOff()
	}
	if err == nil {
		s.revocations.keepEndedSession(ctx, stored)
	}
	return err
}

// deleteSession also removes what reserved room for the session's cutoff. If that fails, it
// expires.
func (s *sessions) deleteSession(ctx context.Context, sid string) error {
	err := s.durable.Delete(ctx, sessionKey(sid))
	if err == nil && s.durable != s.store {
		_ = s.store.Delete(ctx, sessionKey(sid))
	}
	return err
}

// reserveCutoff keeps room for the cutoff of a session in the store, where the session
// itself is not.
func (s *sessions) reserveCutoff(ctx context.Context, sid string) error {
	if s.durable == s.store {
		return nil
	}
	return s.store.Put(ctx, sessionKey(sid), nil, s.lifetime)
}

// endingTime is longer than it takes to end a session.
const endingTime = time.Minute

// clientNote says that a client got something in a session.
type clientNote struct {
	client  *Client
	idToken bool
}

// What the store holds of a client in a session.
var (
	noteIDToken = []byte("ID token")
	noteToken   = []byte("access token")
)

func clientKey(sid, clientID string) string { return storeKey("session-client", sid+" "+clientID) }

// participants are the clients that got something in a session.
type participants struct {
	clients  *registry
	durable  store.Store
	lifetime time.Duration // of a session
}

// joinSession remembers that a client is given something in a session. Each has
// an entry of its own, so that several at once do not lose one another's; and each
// once, because a write to the durable store costs more than all else that a code does.
func (p *participants) joinSession(ctx context.Context, g *grant) error {
	key := clientKey(g.Session, g.ClientID)
	noted, err := p.durable.Get(ctx, key)
	switch {
	case err == nil && (bytes.Equal(noted, noteIDToken) || !g.has("openid")):
		return nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case g.has("openid"):
		return p.durable.Put(ctx, key, noteIDToken, p.lifetime)
	}
	if err = p.durable.Add(ctx, key, noteToken, p.lifetime); errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// clientsOf returns the clients that got something in a session.
func (p *participants) clientsOf(ctx context.Context, sid string) ([]clientNote, error) {
	var notes []clientNote
	for _, client := range p.clients.configured {
		note, err := p.noteOf(ctx, sid, client)
		if err != nil {
			return nil, err
		}
		notes = append(notes, note...)
	}
	return notes, nil
}

// noteOf returns the note of a client in a session, if there is one.
func (p *participants) noteOf(ctx context.Context, sid string, client *Client) ([]clientNote, error) {
	value, err := p.durable.Get(ctx, clientKey(sid, client.ID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []clientNote{{client, bytes.Equal(value, noteIDToken)}}, nil
}

// keepClients lets the notes of a session last as long as the session, which a
// new sign-in makes last longer.
func (p *participants) keepClients(ctx context.Context, sid string) error {
	notes, err := p.clientsOf(ctx, sid)
	for _, note := range notes {
		value := noteToken
		if note.idToken {
			value = noteIDToken
		}
		if err := p.durable.Put(ctx, clientKey(sid, note.client.ID), value, p.lifetime); err != nil {
			return err
		}
	}
	return err
}

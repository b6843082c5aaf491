package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Info describes a session for its user and for operators.
type Info struct {
	ID         string    `json:"sid"`                    // sid, which clients receive in ID tokens
	User       string    `json:"user"`                   // sub of the user
	Since      time.Time `json:"since"`                  // when the session started
	SignedInAt time.Time `json:"signed_in_at"`           // time of the latest sign-in in the session
	Provider   string    `json:"provider,omitempty"`     // key of the identity provider; "" for a password sign-in
	Subject    string    `json:"upstream_sub,omitempty"` // sub at the identity provider
	UserName   string    `json:"user_name,omitempty"`    // user name at the identity provider; only in lists for operators
	Clients    []string  `json:"clients,omitempty"`      // client_ids of the clients that got a code or token in the session
	Address    string    `json:"address,omitempty"`      // IP address of the latest sign-in
	UserAgent  string    `json:"user_agent,omitempty"`   // User-Agent of the latest sign-in, at most 200 bytes, for display only
}

// maxListedSessions is the maximum number of sessions shown to a user.
const maxListedSessions = 100

// Listing lists sessions for operators and for their users, and lets users end them.
type Listing struct {
	Sessions *Sessions // sessions of all users
}

// List returns the sessions of a user, or all sessions if user is "", except those that require a new sign-in (see
// [Sessions.User]). Listing all sessions takes time proportional to the size of the store.
func (l Listing) List(ctx context.Context, user string) ([]Info, error) {
	list := []Info{}
	sessions := allSessions(ctx, l.Sessions.Durable)
	if user != "" {
		sessions = l.Sessions.userSessions(ctx, user)
	}
	for stored, err := range sessions {
		if err == nil {
			err = stored.readErr
		}
		if err != nil {
			return nil, err
		}
		info, err := l.sessionInfo(ctx, stored)
		if err != nil {
			return nil, err
		}
		if info != nil {
			list = append(list, *info)
		}
	}
	return list, nil
}

// sessionInfo describes a session, with its clients. It returns nil if the session requires a new sign-in.
func (l Listing) sessionInfo(ctx context.Context, stored *Session) (*Info, error) {
	user, err := l.Sessions.User(ctx, stored)
	if user == nil || err != nil {
		return nil, err
	}
	info := stored.info()
	info.UserName = people.Finder{Accounts: l.Sessions.Accounts}.Describe(ctx, stored.User).UserName
	participants, err := l.Sessions.Participants.listParticipants(ctx, stored.SID)
	for _, participant := range participants {
		info.Clients = append(info.Clients, participant.client.ID)
	}
	return &info, err
}

// ListForUser returns a user's latest sessions. It omits those with unreadable records, which cannot be used. Unlike
// [Listing.List], it does not search the store.
func (l Listing) ListForUser(ctx context.Context, user string) ([]Info, error) {
	sids, err := l.Sessions.userSessionList(user).Items(ctx, sidSize)
	if err != nil {
		return nil, err
	}
	keys := sessionKeys(sids)
	var list []Info
	for stored, err := range readBatch(ctx, l.Sessions.Durable, keys[:min(len(keys), maxListedSessions)]) {
		if errors.Is(err, ErrUnreadable) {
			continue
		}
		if err == nil {
			stored, err = l.validForUser(ctx, user, stored)
		}
		if err != nil {
			return nil, err
		}
		if stored != nil {
			list = append(list, stored.info())
		}
	}
	return list, nil
}

// info describes a session without its clients.
func (s *Session) info() Info {
	return Info{
		ID: s.SID, User: s.User, Since: s.StartedAt, SignedInAt: s.SignedInAt,
		Provider: s.Provider, Subject: s.UpstreamSubject, Address: s.Address, UserAgent: s.UserAgent,
	}
}

// validForUser returns the session if it belongs to the user and does not require a new sign-in; otherwise nil.
func (l Listing) validForUser(ctx context.Context, user string, stored *Session) (*Session, error) {
	if stored == nil || stored.User != user {
		return nil, nil
	}
	person, err := l.Sessions.User(ctx, stored)
	if person == nil || err != nil {
		return nil, err
	}
	return stored, nil
}

// EndForUser ends the session with a sid if it belongs to the user. Otherwise it does nothing.
func (l Listing) EndForUser(ctx context.Context, user, sid string) error {
	stored, err := l.Sessions.Find(ctx, sid)
	if stored == nil || err != nil || stored.User != user {
		return err
	}
	return l.Sessions.End(ctx, stored)
}

// EndAllExcept ends all sessions of a user, except the one with the sid.
func (l Listing) EndAllExcept(ctx context.Context, user, sid string) error {
	_, err := l.Sessions.endUserSessions(ctx, user, sid)
	return err
}

// userSessionList returns the list of a user's sessions.
func (s *Sessions) userSessionList(user string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("sessions", user), Max: maxSessions, TTL: s.Lifetime}
}

// upstreamList returns the list of sessions that started with a sign-in of a subject at a provider.
func (s *Sessions) upstreamList(provider, subject string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("upstream-sessions", provider+"\x00"+subject), Max: maxSessions, TTL: s.Lifetime}
}

// listsWith returns the lists to which a session belongs.
func (s *Sessions) listsWith(stored *Session) []store.RecentList {
	lists := []store.RecentList{s.userSessionList(stored.User)}
	if stored.Provider != "" {
		lists = append(lists, s.upstreamList(stored.Provider, stored.UpstreamSubject))
	}
	return lists
}

// loadListedSessions returns the sids in a list and their existing sessions.
func (s *Sessions) loadListedSessions(ctx context.Context, list store.RecentList) (sids []string, sessions iter.Seq2[*Session, error], err error) {
	sids, err = list.Items(ctx, sidSize)
	return sids, readSessions(ctx, s.Durable, sessionKeys(sids)), err
}

// sessionKeys returns the store keys of sessions, without duplicates.
func sessionKeys(sids []string) (keys []string) {
	seen := make(map[string]bool, len(sids))
	for _, sid := range sids {
		if !seen[sid] {
			keys = append(keys, Key(sid))
		}
		seen[sid] = true
	}
	return keys
}

// userSessions yields the sessions of a user and read errors. An unreadable session belongs to the user with a list that
// contains its sid.
func (s *Sessions) userSessions(ctx context.Context, user string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		sids, sessions, err := s.loadListedSessions(ctx, s.userSessionList(user))
		if err != nil {
			yield(nil, err)
			return
		}
		for stored, err := range sessions {
			if sid := unreadableSID(err); sid != "" {
				if !slices.Contains(sids, sid) {
					continue
				}
				stored, err = newUnreadableSession(sid, user, err), nil
			}
			if (err != nil || stored.User == user) && !yield(stored, err) {
				return
			}
		}
	}
}

// upstreamSessions yields the sessions that a provider refers to, by subject, by session or by both, and read errors. Sessions
// are indexed by subject. Without a subject, it reads all sessions.
func (s *Sessions) upstreamSessions(ctx context.Context, p *people.Provider, subject, session string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		sessions := allSessions(ctx, s.Durable)
		if subject != "" {
			var err error
			if _, sessions, err = s.loadListedSessions(ctx, s.upstreamList(p.Key, subject)); err != nil {
				yield(nil, err)
				return
			}
		}
		for stored, err := range sessions {
			if (err != nil || stored.matchesUpstream(p, subject, session)) && !yield(stored, err) {
				return
			}
		}
	}
}

// storeAndList calls put to store and list a session. If a list is full, it ends the user's oldest sessions and retries.
func (s *Sessions) storeAndList(ctx context.Context, session *Session, put func(listCalls []*store.Call) error) error {
	lists := s.listsWith(session)
	for {
		var listCalls []*store.Call
		for _, list := range lists {
			listCalls = append(listCalls, list.AddCall(session.SID))
		}
		err := put(listCalls)
		if !errors.Is(err, store.ErrTooLong) || ctx.Err() != nil {
			return err
		}
		for i, c := range listCalls {
			if errors.Is(c.Err, store.ErrTooLong) {
				err = s.endExcessSessions(ctx, session, lists[i])
			}
		}
		if err != nil {
			return err
		}
	}
}

// endExcessSessions ends the oldest sessions in a list so that there is space for another one.
func (s *Sessions) endExcessSessions(ctx context.Context, session *Session, list store.RecentList) error {
	dropped, err := list.MakeSpace(ctx, len(session.SID))
	if err == nil {
		s.endOldest(ctx, session.User, slices.DeleteFunc(dropped, func(sid string) bool { return sid == session.SID }))
	}
	return err
}

// allSessions yields all stored sessions, and any error of listing or reading them.
func allSessions(ctx context.Context, durable store.Store) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		keys, err := durable.List(ctx, Key(""))
		if err != nil && !yield(nil, err) {
			return
		}
		for stored, err := range readSessions(ctx, durable, keys) {
			if !yield(stored, err) {
				return
			}
		}
	}
}

// readSessions yields the sessions with the given keys, if they exist, and read errors.
func readSessions(ctx context.Context, durable store.Store, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		for batch := range slices.Chunk(keys, readBatchSize) {
			for stored, err := range readBatch(ctx, durable, batch) {
				if (stored != nil || err != nil) && !yield(stored, err) {
					return
				}
			}
		}
	}
}

// readBatchSize is the number of sessions read in one step.
const readBatchSize = 100

// readBatch yields the sessions with the given keys, at most [readBatchSize]; nil for sessions that have ended.
func readBatch(ctx context.Context, durable store.Store, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		values, err := store.ReadValues(ctx, durable, keys...)
		if err != nil {
			yield(nil, fmt.Errorf("reading sessions: %w", err))
			return
		}
		for i, value := range values {
			if !yield(parseSession(strings.TrimPrefix(keys[i], Key("")), value)) {
				return
			}
		}
	}
}

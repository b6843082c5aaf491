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
	ID         string    `json:"sid"`                    // sid, known to clients
	User       string    `json:"user"`                   // sub of the user
	Since      time.Time `json:"since"`                  // start of the session
	SignedInAt time.Time `json:"signed_in_at"`           // time of the latest sign-in
	Provider   string    `json:"provider,omitempty"`     // key of the identity provider; "" for a password sign-in
	Subject    string    `json:"upstream_sub,omitempty"` // sub at the provider
	UserName   string    `json:"user_name,omitempty"`    // user name at the provider, in lists for operators
	Clients    []string  `json:"clients,omitempty"`      // ids of clients that got a code or token in the session
	Address    string    `json:"address,omitempty"`      // IP address of the latest sign-in
	UserAgent  string    `json:"user_agent,omitempty"`   // User-Agent of the latest sign-in, at most 200 bytes, for display only
}

// maxListed is the number of their latest sessions shown to a user.
const maxListed = 100

// Listing lists sessions for operators and for their users, who may end them.
type Listing struct {
	Sessions *Sessions // sessions to list
}

// List returns the sessions of a user, or all sessions if user is empty, except sessions that require a new
// sign-in (see [Sessions.User]). The run time for all sessions is proportional to the size of the store.
func (l Listing) List(ctx context.Context, user string) ([]Info, error) {
	list := []Info{}
	sessions := allSessions(ctx, l.Sessions.Durable)
	if user != "" {
		sessions = l.Sessions.ofUser(ctx, user)
	}
	for stored, err := range sessions {
		if err == nil {
			err = stored.unreadable
		}
		if err != nil {
			return nil, err
		}
		info, err := l.info(ctx, stored)
		if err != nil {
			return nil, err
		}
		if info != nil {
			list = append(list, *info)
		}
	}
	return list, nil
}

// info describes a session; nil if it requires a new sign-in.
func (l Listing) info(ctx context.Context, stored *Session) (*Info, error) {
	user, err := l.Sessions.User(ctx, stored)
	if user == nil || err != nil {
		return nil, err
	}
	described := stored.describe()
	described.UserName = people.Finder{Accounts: l.Sessions.Accounts}.Describe(ctx, stored.User).UserName
	participants, err := l.Sessions.Participants.list(ctx, stored.SID)
	for _, participant := range participants {
		described.Clients = append(described.Clients, participant.client.ID)
	}
	return &described, err
}

// Own returns a user's latest sessions, except those with unreadable records, which are not
// accepted as sessions. Unlike [Listing.List], it does not search the store.
func (l Listing) Own(ctx context.Context, user string) ([]Info, error) {
	sids, err := l.Sessions.listOf(user).Items(ctx, sidSize)
	if err != nil {
		return nil, err
	}
	keys := keysOfSIDs(sids)
	var list []Info
	for stored, err := range readSome(ctx, l.Sessions.Durable, keys[:min(len(keys), maxListed)]) {
		if errors.Is(err, ErrUnreadable) {
			continue
		}
		if err == nil {
			stored, err = l.own(ctx, user, stored)
		}
		if err != nil {
			return nil, err
		}
		if stored != nil {
			list = append(list, stored.describe())
		}
	}
	return list, nil
}

// describe describes a session without its clients.
func (s *Session) describe() Info {
	return Info{
		ID: s.SID, User: s.User, Since: s.Began, SignedInAt: s.SignedInAt,
		Provider: s.Provider, Subject: s.UpstreamSubject, Address: s.Address, UserAgent: s.UserAgent,
	}
}

// own returns the session if it belongs to the user and requires no new sign-in; otherwise nil.
func (l Listing) own(ctx context.Context, user string, stored *Session) (*Session, error) {
	if stored == nil || stored.User != user {
		return nil, nil
	}
	person, err := l.Sessions.User(ctx, stored)
	if person == nil || err != nil {
		return nil, err
	}
	return stored, nil
}

// EndOwn ends a session of the user. Sessions of other users are left alone.
func (l Listing) EndOwn(ctx context.Context, user, sid string) error {
	stored, err := l.Sessions.Find(ctx, sid)
	if stored == nil || err != nil || stored.User != user {
		return err
	}
	return l.Sessions.End(ctx, stored)
}

// EndOthers ends all sessions of a user except one.
func (l Listing) EndOthers(ctx context.Context, user, sid string) error {
	_, err := l.Sessions.endOf(ctx, user, sid)
	return err
}

// listOf returns the list of a user's sessions.
func (s *Sessions) listOf(user string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("sessions", user), Max: maxSessions, TTL: s.Lifetime}
}

// upstreamList returns the list of sessions that started with a subject's sign-in at a provider.
func (s *Sessions) upstreamList(provider, subject string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("upstream-sessions", provider+"\x00"+subject), Max: maxSessions, TTL: s.Lifetime}
}

// listsOf returns the lists that contain a session.
func (s *Sessions) listsOf(stored *Session) []store.RecentList {
	lists := []store.RecentList{s.listOf(stored.User)}
	if stored.Provider != "" {
		lists = append(lists, s.upstreamList(stored.Provider, stored.UpstreamSubject))
	}
	return lists
}

// listed returns the sids in a list and their sessions.
func (s *Sessions) listed(ctx context.Context, list store.RecentList) (sids []string, sessions iter.Seq2[*Session, error], err error) {
	sids, err = list.Items(ctx, sidSize)
	return sids, readSessions(ctx, s.Durable, keysOfSIDs(sids)), err
}

// keysOfSIDs returns the distinct keys of sessions.
func keysOfSIDs(sids []string) (keys []string) {
	seen := make(map[string]bool, len(sids))
	for _, sid := range sids {
		if !seen[sid] {
			keys = append(keys, Key(sid))
		}
		seen[sid] = true
	}
	return keys
}

// ofUser yields the sessions of a user and read errors. An unreadable session belongs to the user
// with its sid in their list.
func (s *Sessions) ofUser(ctx context.Context, user string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		sids, sessions, err := s.listed(ctx, s.listOf(user))
		if err != nil {
			yield(nil, err)
			return
		}
		for stored, err := range sessions {
			if sid := unreadableSID(err); sid != "" {
				if !slices.Contains(sids, sid) {
					continue
				}
				stored, err = unreadable(sid, user, err), nil
			}
			if (err != nil || stored.User == user) && !yield(stored, err) {
				return
			}
		}
	}
}

// ofUpstream yields the sessions that a provider refers to by subject, session or both, and read
// errors. Sessions are indexed by subject; without a subject, all sessions are read.
func (s *Sessions) ofUpstream(ctx context.Context, p *people.Provider, subject, session string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		sessions := allSessions(ctx, s.Durable)
		if subject != "" {
			var err error
			if _, sessions, err = s.listed(ctx, s.upstreamList(p.Key, subject)); err != nil {
				yield(nil, err)
				return
			}
		}
		for stored, err := range sessions {
			if (err != nil || stored.beganWith(p, subject, session)) && !yield(stored, err) {
				return
			}
		}
	}
}

// putListed stores and lists a session, and ends the user's oldest sessions beyond the limit.
func (s *Sessions) putListed(ctx context.Context, session *Session, put func(listing []*store.Call) error) error {
	lists := s.listsOf(session)
	for {
		var listing []*store.Call
		for _, list := range lists {
			listing = append(listing, list.AddCall(session.SID))
		}
		err := put(listing)
		if !errors.Is(err, store.ErrTooLong) || ctx.Err() != nil {
			return err
		}
		for i, c := range listing {
			if errors.Is(c.Err, store.ErrTooLong) {
				err = s.shorten(ctx, session, lists[i])
			}
		}
		if err != nil {
			return err
		}
	}
}

// shorten makes room for a session in a list.
func (s *Sessions) shorten(ctx context.Context, session *Session, list store.RecentList) error {
	dropped, err := list.Fold(ctx, len(session.SID))
	if err == nil {
		s.endDropped(ctx, session.User, slices.DeleteFunc(dropped, func(sid string) bool { return sid == session.SID }))
	}
	return err
}

// allSessions yields all sessions and read errors.
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

// readSessions yields the existing sessions of some keys and read errors.
func readSessions(ctx context.Context, durable store.Store, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		for some := range slices.Chunk(keys, readAtOnce) {
			for stored, err := range readSome(ctx, durable, some) {
				if (stored != nil || err != nil) && !yield(stored, err) {
					return
				}
			}
		}
	}
}

// readAtOnce is the number of sessions read in one step.
const readAtOnce = 100

// readSome yields the sessions of at most [readAtOnce] keys; nil for sessions that have ended.
func readSome(ctx context.Context, durable store.Store, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		values, err := store.Values(ctx, durable, keys...)
		if err != nil {
			yield(nil, fmt.Errorf("reading sessions: %w", err))
			return
		}
		for i, value := range values {
			if !yield(parse(strings.TrimPrefix(keys[i], Key("")), value)) {
				return
			}
		}
	}
}

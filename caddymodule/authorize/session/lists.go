package session

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// listOf is the list of a person's sessions.
func (s *Sessions) listOf(user string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("sessions", user), Max: maxSessions, TTL: s.Lifetime}
}

// upstreamList is the list of the sessions that began with a subject's sign-in at a provider.
func (s *Sessions) upstreamList(provider, subject string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("upstream-sessions", provider+"\x00"+subject), Max: maxSessions, TTL: s.Lifetime}
}

// listsOf are the lists that a session is in.
func (s *Sessions) listsOf(stored *Session) []store.RecentList {
	lists := []store.RecentList{s.listOf(stored.User)}
	if stored.Provider != "" {
		lists = append(lists, s.upstreamList(stored.Provider, stored.UpstreamSubject))
	}
	return lists
}

// listed returns the sids in a list and the sessions with these sids.
func (s *Sessions) listed(ctx context.Context, list store.RecentList) (sids []string, sessions iter.Seq2[*Session, error], err error) {
	sids, err = list.Items(ctx, sidSize)
	return sids, (records{s.Durable}).of(ctx, keysOfSIDs(sids)), err
}

// keysOfSIDs are the keys of sessions, each once.
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

// ofUser yields the sessions of a user, and the errors of reading them. An unreadable session belongs to the user whose list
// has its sid.
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

// ofUpstream yields the sessions that a provider names by subject, session or both, and the errors of reading them. The
// lists are by subject: without a subject, it reads all sessions.
func (s *Sessions) ofUpstream(ctx context.Context, p *people.Provider, subject, session string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		sessions := (records{s.Durable}).all(ctx)
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

// putListed stores a session and lists it, and ends the person's oldest sessions if there are too many.
func (s *Sessions) putListed(ctx context.Context, session *Session, put func(listing []*store.Call) error) error {
	lists := s.listsOf(session)
	for {
		var listing []*store.Call
		for _, list := range lists {
			listing = append(listing, list.Adding(session.SID))
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

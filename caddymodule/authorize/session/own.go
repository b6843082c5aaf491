package session

import (
	"context"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxListed is how many of their own sessions a person sees: the latest.
const maxListed = 100

var sidSize = len(oauth2.RandomToken())

// listOf is the list of a person's sessions.
func (s *Sessions) listOf(user string) store.RecentList {
	return store.RecentList{Store: s.Durable, Key: store.Key("sessions", user), Max: maxSessions, TTL: s.Lifetime}
}

// Own returns a person's latest sessions. Unlike [Sessions.List], it does not search the
// store.
func (s *Sessions) Own(ctx context.Context, user string) ([]Info, error) {
	sids, err := s.listOf(user).Items(ctx, sidSize)
	if err != nil {
		return nil, err
	}
	var list []Info
	for _, sid := range sids[:min(len(sids), maxListed)] {
		stored, err := s.findOwn(ctx, user, sid)
		if err != nil {
			return nil, err
		}
		if stored != nil && !slices.ContainsFunc(list, func(known Info) bool { return known.ID == sid }) {
			list = append(list, stored.describe())
		}
	}
	return list, nil
}

// describe describes a session without its clients.
func (s *Session) describe() Info {
	return Info{
		ID: s.SID, User: s.User, Since: s.Began, SignedInAt: s.At,
		Provider: s.Provider, Address: s.Address, UserAgent: s.UserAgent,
	}
}

// findOwn returns a session of a person, or nil.
func (s *Sessions) findOwn(ctx context.Context, user, sid string) (*Session, error) {
	stored, err := s.Find(ctx, sid)
	if stored == nil || err != nil || stored.User != user {
		return nil, err
	}
	person, err := s.User(ctx, stored)
	if person == nil || err != nil {
		return nil, err
	}
	return stored, nil
}

// EndOwn ends one session of a person. Anybody else's stays as it is.
func (s *Sessions) EndOwn(ctx context.Context, user, sid string) error {
	stored, err := s.Find(ctx, sid)
	if stored == nil || err != nil || stored.User != user {
		return err
	}
	return s.End(ctx, stored)
}

// EndOthers ends all sessions of a person but the one with a sid. It searches the store, so
// that it misses none.
func (s *Sessions) EndOthers(ctx context.Context, user, sid string) error {
	_, err := s.endEach(ctx, func(stored *Session) bool { return stored.User == user && stored.SID != sid })
	return err
}

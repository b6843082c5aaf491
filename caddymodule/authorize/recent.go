package authorize

import (
	"context"
	"errors"
	"slices"
	"time"
)

// What one person may have at a time, far more than an app in order needs: a store is
// there for all, and who is let in could fill it. What is beyond ends, the oldest first.
const (
	// maxCodes is how many codes there are, exchanged ones included.
	maxCodes = 200

	// maxFamilies is how many grants to one client can be refreshed.
	maxFamilies = 200

	// maxSessions is how many browsers one is signed in at. A ward may share an account.
	maxSessions = 1000
)

// keepRecent adds an item to the list under key, and returns those that are too many,
// which are no longer in it. The items of a list are equally long.
func keepRecent(ctx context.Context, store Store, key, item string, most int, ttl time.Duration) (dropped []string, err error) {
	for {
		stored, err := store.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		items := append(slices.Clip(stored), item...)
		extra := max(0, len(items)-most*len(item))
		if err != nil {
			err = store.Add(ctx, key, items, ttl)
		} else {
			err = store.Swap(ctx, key, stored, items[extra:], ttl)
		}
		if errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) { // by another at the same time
			continue
		}
		for old := range slices.Chunk(items[:extra], len(item)) {
			dropped = append(dropped, string(old))
		}
		return dropped, err
	}
}

// keepSession makes room for a person's new session.
func (s *Server) keepSession(ctx context.Context, user *User, sid string) error {
	dropped, err := keepRecent(ctx, s.store, storeKey("sessions", user.ID), sid, maxSessions, s.sessionLifetime)
	for _, sid := range dropped {
		err = errors.Join(err, s.EndSession(ctx, sid))
	}
	return err
}

// keepCode makes room for a person's new code.
func (s *Server) keepCode(ctx context.Context, g *grant, key string) error {
	dropped, err := keepRecent(ctx, s.store, storeKey("codes", g.User), key+g.Family, maxCodes, s.codeLifetime)
	for _, item := range dropped {
		key, family := item[:len(key)], item[len(key):]
		err = errors.Join(err, s.store.Delete(ctx, key))
		// That it was used need not be known any more; that it was revoked must be.
		if e := s.store.Swap(ctx, tokenKey(family), tokenUsed, tokenUsed, time.Second); !errors.Is(e, ErrChanged) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// keepFamily makes room for a person's new family at a client.
func (s *Server) keepFamily(ctx context.Context, g *grant) error {
	key := storeKey("families", g.User+"\x00"+g.ClientID)
	dropped, err := keepRecent(ctx, s.durable, key, g.Family, maxFamilies, s.refreshLifetime)
	for _, id := range dropped {
		err = errors.Join(err, s.durable.Delete(ctx, familyKey(id)))
	}
	return err
}

package authorize

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// What one person may have at a time, far more than an app in order needs: a store is
// there for all, and who is let in could fill it. What is beyond ends, the oldest first.
const (
	// maxCodes is how many codes there are, exchanged ones included.
	maxCodes = 200

	// maxFamilies is how many grants to one client can be refreshed. Those that ended
	// by themselves do not count: who signs in several times a day, in sessions that
	// end in the evening, must not lose what their telephone has for months.
	maxFamilies = 200

	// maxSessions is how many browsers one is signed in at. A ward may share an account.
	maxSessions = 1000
)

// recentList names a list of items, all equally long, the oldest first.
type recentList struct {
	store store.Store
	key   string
	most  int           // items
	ttl   time.Duration // of the whole list

	// ended says whether an item no longer counts. Nil: all count.
	ended func(item string) (bool, error)
}

// keep adds an item to the list, and returns those that are too many, which are no
// longer in it.
func (l recentList) keep(ctx context.Context, item string) (dropped []string, err error) {
	for {
		stored, err := l.store.Get(ctx, l.key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		isNew := err != nil
		items, dropped, err := l.fit(append(slices.Clip(stored), item...), len(item))
		switch {
		case err != nil:
			return nil, err
		case isNew:
			err = l.store.Add(ctx, l.key, items, l.ttl)
		default:
			err = l.store.Swap(ctx, l.key, stored, items, l.ttl)
		}
		if errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrChanged) { // by another at the same time
			continue
		}
		return dropped, err
	}
}

// fit takes from a list that is too long the items that ended, and then the oldest.
func (l recentList) fit(list []byte, size int) (items []byte, dropped []string, err error) {
	if len(list) <= l.most*size {
		return list, nil, nil
	}
	for chunk := range slices.Chunk(list, size) {
		ended := false
		if l.ended != nil {
			ended, err = l.ended(string(chunk))
		}
		if err != nil {
			return nil, nil, err
		}
		if !ended {
			items = append(items, chunk...)
		}
	}
	over := max(0, len(items)-l.most*size)
	for old := range slices.Chunk(items[:over], size) {
		dropped = append(dropped, string(old))
	}
	return items[over:], dropped, nil
}

// keepSession makes room for a person's new session. They are signed in by then, so
// that there is no room made keeps nobody out.
func (s *sessions) keepSession(ctx context.Context, session *storedSession) {
	list := recentList{store: s.durable, key: storeKey("sessions", session.User), most: maxSessions, ttl: s.lifetime}
	dropped, err := list.keep(ctx, session.sid)
	noteEnding(ctx, "the person has too many newer ones")
	for _, sid := range dropped {
		_, endErr := s.EndSession(ctx, sid)
		err = errors.Join(err, endErr)
	}
	if err != nil {
		s.logger.ErrorContext(ctx, "sessions of a person not counted", "user", session.User, "error", err)
	}
}

// keepCode makes room for a person's new code.
func (cs *codes) keepCode(ctx context.Context, g *grant, key string) error {
	old, ok := cs.recent.keep(g.User, recentCode{key: key, family: g.Family})
	if !ok {
		return nil
	}
	err := cs.store.Delete(ctx, old.key)
	// That it was used need not be known any more; that it was revoked must be.
	if e := cs.store.Swap(ctx, tokenKey(old.family), tokenUsed, tokenUsed, time.Second); !errors.Is(e, store.ErrChanged) {
		err = errors.Join(err, e)
	}
	return err
}

// keepFamily makes room for a person's new family at a client. It must be stored: as
// one that is not, it would have ended. The client has it by then, so that there is no
// room made is no failure of its request.
func (fs *families) keepFamily(ctx context.Context, g *grant) {
	if err := fs.dropFamilies(ctx, g); err != nil {
		fs.logger.ErrorContext(ctx, "refresh tokens of a person and a client not counted", "client_id", g.ClientID, "error", err)
	}
}

// dropFamilies adds a family to those of its person and client, and removes those that
// are too many.
func (fs *families) dropFamilies(ctx context.Context, g *grant) error {
	list := recentList{
		store: fs.durable, key: storeKey("families", g.User+"\x00"+g.ClientID), most: maxFamilies, ttl: fs.lifetime,
		ended: func(id string) (bool, error) {
			_, err := fs.durable.Get(ctx, familyKey(id))
			if errors.Is(err, store.ErrNotFound) {
				return true, nil
			}
			return false, err
		},
	}
	dropped, err := list.keep(ctx, g.Family)
	for _, id := range dropped {
		err = errors.Join(err, fs.durable.Delete(ctx, familyKey(id)))
	}
	return err
}

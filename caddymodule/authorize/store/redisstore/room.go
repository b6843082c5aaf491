package redisstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// room bounds the entries, by the number of keys that the server tells once in a while.
type room struct {
	max     atomic.Int64 // 0: any number
	entries atomic.Int64 // when it was last told
	asked   atomic.Int64 // Unix time in ns
}

// recount is how long a number of keys is used.
const recount = time.Second

// checkRoom fails with [store.ErrFull] if there is no room for what calls may add.
func (s *Store) checkRoom(ctx context.Context, calls []*store.Call) error {
	most := s.room.max.Load()
	if most <= 0 || !slices.ContainsFunc(calls, func(c *store.Call) bool { return c.Stores() && c.Op != store.Swap }) {
		return nil
	}
	asked, now := s.room.asked.Load(), time.Now()
	if now.Sub(time.Unix(0, asked)) > recount && s.room.asked.CompareAndSwap(asked, now.UnixNano()) {
		if _, err := s.Size(ctx); err != nil {
			return err
		}
	}
	if s.room.entries.Load() >= most {
		return store.ErrFull
	}
	return nil
}

// SetMaxEntries changes the limit for new entries (0: none but the server's memory).
func (s *Store) SetMaxEntries(n int) { s.room.max.Store(int64(n)) }

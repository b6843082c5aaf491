package redisstore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// room bounds the entries, by the number of keys that the server is asked for once in a while.
type room struct {
	connection *connection
	max        int64        // 0: any number
	entries    atomic.Int64 // as last counted
	counted    atomic.Int64 // when that was, as Unix time in ns
}

// recount is how long a number of keys is used.
const recount = time.Second

// check fails with [store.ErrFull] if there is no room for some of the calls. As many others
// that delete make room; that their entries are there is taken on trust.
func (r *room) check(ctx context.Context, need int, calls []*store.Call) error {
	for _, c := range calls {
		if c.Removes() {
			need--
		}
	}
	if r.max <= 0 || need <= 0 {
		return nil
	}
	asked, now := r.counted.Load(), time.Now()
	if now.Sub(time.Unix(0, asked)) > recount && r.counted.CompareAndSwap(asked, now.UnixNano()) {
		if _, err := r.count(ctx); err != nil {
			return err
		}
	}
	if r.entries.Load() >= r.max {
		return store.ErrFull
	}
	return nil
}

// count asks for the number of keys.
func (r *room) count(ctx context.Context) (entries int, err error) {
	err = r.connection.asked(ctx, func(ctx context.Context) error {
		n, err := r.connection.client.DBSize(ctx).Result()
		if r.entries.Store(n); err == nil {
			r.counted.Store(time.Now().UnixNano())
		}
		entries = int(n)
		return err
	})
	return entries, err
}

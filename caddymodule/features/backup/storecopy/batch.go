package storecopy

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemark"
)

const (
	// DefaultBatch is how many entries pass in one step: so many that what each step costs by itself is little, and so
	// few that a server makes it quickly, between those of others.
	DefaultBatch = 200

	// entrySize is what a batch may have for each of its entries, in bytes of values. It ends with the value that
	// exceeds that.
	entrySize = 1280

	// ending is what an entry has left that may be gone when it is looked for.
	ending = 10 * time.Second
)

type entry struct {
	key   string
	value []byte
	ends  time.Time
	old   []byte // what the value replaces in a [store.Swap]
}

func (e entry) isEnding() bool { return time.Until(e.ends) < ending }

// A batch has each key once.
type batch []entry

// eachBatch passes on all entries but our own, so many at once.
func eachBatch(ctx context.Context, s store.Copyable, most int, pass func(batch) error) error {
	var b batch
	size, at := 0, map[string]int{}
	err := s.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		if storemark.Is(key) || ttl <= 0 {
			return nil
		}
		e := entry{key: key, value: bytes.Clone(value), ends: time.Now().Add(ttl)} // it may be the store's own memory
		if i, again := at[key]; again {
			b[i] = e
			return nil
		}
		at[key], b = len(b), append(b, e)
		if size += len(value); len(b) < most && size < most*entrySize {
			return nil
		}
		full := b
		b, size = nil, 0
		clear(at)
		return pass(full)
	})
	if err != nil || len(b) == 0 {
		return err
	}
	return pass(b)
}

// find returns what a store has under the keys of the entries, in their order.
func (b batch) find(ctx context.Context, s store.Store) ([]*store.Call, error) {
	return b.do(ctx, s, store.Get)
}

const (
	attempts = 5 // of a step, while the store does not answer
	pause    = time.Second
)

// do makes a call for each entry, in one step; and again after a pause if the store did not answer.
func (b batch) do(ctx context.Context, s store.Store, op store.Op) (calls []*store.Call, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	for try := range attempts {
		if try > 0 {
			if err := wait(ctx); err != nil {
				return nil, err
			}
		}
		calls = make([]*store.Call, len(b))
		for i, e := range b {
			calls[i] = &store.Call{Op: op, Key: e.key, Old: e.old, Value: e.value, TTL: max(time.Until(e.ends), time.Millisecond)}
		}
		if err = s.Do(ctx, calls...); !errors.Is(err, store.ErrUnavailable) {
			break
		}
	}
	return calls, err
}

func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

package storecopy

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	maxBatch      = 200       // entries
	maxBatchBytes = 256 << 10 // of values, and one more value

	// ending is what an entry has left that may be gone when it is looked for.
	ending = 10 * time.Second
)

type entry struct {
	key   string
	value []byte
	ends  time.Time
}

func (e entry) isEnding() bool { return time.Until(e.ends) < ending }

type batch []entry

// eachBatch passes on all entries but our own.
func eachBatch(ctx context.Context, s Store, pass func(batch) error) error {
	var b batch
	size := 0
	err := s.Entries(ctx, func(key string, value []byte, ttl time.Duration) error {
		if store.KindOf(key) == ownKind || ttl <= 0 {
			return nil
		}
		b = append(b, entry{key, bytes.Clone(value), time.Now().Add(ttl)}) // it may be the store's own memory
		if size += len(value); len(b) < maxBatch && size < maxBatchBytes {
			return nil
		}
		full := b
		b, size = nil, 0
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

// without returns the entries that were not found, and how many of the others have another value.
func (b batch) without(found []*store.Call) (missing batch, others int) {
	for i, e := range b {
		switch value := found[i].Value; {
		case value == nil:
			missing = append(missing, e)
		case string(value) != string(e.value):
			others++
		}
	}
	return missing, others
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
			calls[i] = &store.Call{Op: op, Key: e.key, Value: e.value, TTL: max(time.Until(e.ends), time.Millisecond)}
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

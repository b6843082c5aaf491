package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// scanCount is the number of keys that Redis examines per SCAN command.
const scanCount = 1000

// List implements [store.Store]. It scans all keys in the database.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	found := map[string]bool{} // SCAN may return a key twice
	err := s.scan(ctx, prefix, func(_ *redis.Client, _, keys []string) error {
		for _, key := range keys {
			found[key] = true
		}
		return nil
	})
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	return keys, err
}

// Entries implements [store.Exporter]. While Redis resizes its table, SCAN may return an entry twice. Such entries are reported
// twice, because removing duplicates would require keeping all keys in memory.
func (s *Store) Entries(ctx context.Context, report func(key string, value []byte, ttl time.Duration) error) error {
	return s.scan(ctx, "", func(server *redis.Client, names, keys []string) error {
		var values []*redis.StringCmd
		var lifetimes []*redis.DurationCmd
		if err := s.connection.call(ctx, func(ctx context.Context) error {
			pipe := server.Pipeline()
			for _, name := range names {
				values = append(values, pipe.Get(ctx, name))
				lifetimes = append(lifetimes, pipe.PTTL(ctx, name))
			}
			_, err := pipe.Exec(ctx)
			return err
		}); err != nil {
			return err
		}
		for i, key := range keys {
			ttl, err := lifetimes[i].Result()
			if ttl <= 0 || errors.Is(values[i].Err(), redis.Nil) { // deleted or expired in the meantime
				continue
			}
			value, versionErr := decodeRecord(values[i].Val())
			if err := errors.Join(err, values[i].Err(), versionErr); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			if err := report(key, value, ttl); err != nil {
				return err
			}
		}
		return nil
	})
}

// scan reports the entries with a key prefix, in pages, together with their server.
func (s *Store) scan(ctx context.Context, prefix string, report func(server *redis.Client, names, keys []string) error) error {
	var mu sync.Mutex  // the client scans all masters concurrently
	var firstErr error // first error returned by report
	err := s.connection.eachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		return s.scanServer(ctx, server, prefix, func(server *redis.Client, names, keys []string) error {
			mu.Lock()
			defer mu.Unlock()
			if firstErr == nil {
				firstErr = report(server, names, keys)
			}
			return firstErr
		})
	})
	if firstErr != nil {
		return firstErr
	}
	return s.connection.handleError(ctx, err)
}

func (s *Store) scanServer(ctx context.Context, server *redis.Client, prefix string, report func(server *redis.Client, names, keys []string) error) error {
	for cursor := uint64(0); ; {
		var found []string
		if err := s.connection.call(ctx, func(ctx context.Context) (err error) {
			found, cursor, err = server.Scan(ctx, cursor, s.names.pattern(prefix), scanCount).Result()
			return err
		}); err != nil {
			return err
		}
		var keys []string
		names := slices.DeleteFunc(found, func(name string) bool {
			key, isEntry := s.names.parseKey(name)
			if isEntry {
				keys = append(keys, key)
			}
			return !isEntry
		})
		if err := report(server, names, keys); err != nil || cursor == 0 {
			return err
		}
	}
}

// capacity limits the number of keys in the database, which is counted periodically.
type capacity struct {
	connection *connection
	max        int64        // maximum number of keys; 0 means no limit
	entries    atomic.Int64 // number of keys at the last count
	counted    atomic.Int64 // time of the last count in Unix ns
}

// countInterval is how long a count is valid.
const countInterval = time.Second

// check returns [store.ErrFull] if the calls would exceed the limit. It assumes that each call that deletes an entry frees
// capacity for another one.
func (r *capacity) check(ctx context.Context, need int, calls []*store.Call) error {
	for _, c := range calls {
		if c.RemovesKey() {
			need--
		}
	}
	if r.max <= 0 || need <= 0 {
		return nil
	}
	lastCount, now := r.counted.Load(), time.Now()
	if now.Sub(time.Unix(0, lastCount)) > countInterval && r.counted.CompareAndSwap(lastCount, now.UnixNano()) {
		if _, err := r.count(ctx); err != nil {
			return err
		}
	}
	if r.entries.Load() >= r.max {
		return store.ErrFull
	}
	return nil
}

func (r *capacity) count(ctx context.Context) (entries int, err error) {
	err = r.connection.call(ctx, func(ctx context.Context) error {
		n, err := r.connection.client.DBSize(ctx).Result()
		if err != nil {
			return err
		}
		r.entries.Store(n)
		r.counted.Store(time.Now().UnixNano())
		entries = int(n)
		return nil
	})
	return entries, err
}

package redisstore

import (
	"cmp"
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Store is a [store.Shared] in Redis.
type Store struct {
	client   redis.UniversalClient
	names    names
	followed map[string]bool // kinds
	timeout  time.Duration
	replicas int // to wait for
	clock    clock
	room     room
}

// New returns a store in what the options say. It connects on first use.
func New(o Options) *Store {
	s := &Store{
		client: o.client(), names: names{cmp.Or(o.KeyPrefix, DefaultKeyPrefix), len(o.Cluster) > 0},
		followed: map[string]bool{}, timeout: o.timeout(), replicas: o.WaitReplicas,
	}
	for _, kind := range o.Followed {
		s.followed[kind] = true
	}
	s.SetMaxEntries(o.MaxEntries)
	return s
}

// Close ends all connections. Later calls fail.
func (s *Store) Close() error { return s.client.Close() }

// Pool tells about the connections.
func (s *Store) Pool() *redis.PoolStats { return s.client.PoolStats() }

// Now implements [store.Shared].
func (s *Store) Now() time.Time { return time.Now().Add(s.clock.ahead()) }

// Put implements [store.Store].
func (s *Store) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.Do(ctx, &store.Call{Op: store.Put, Key: key, Value: value, TTL: ttl})
}

// Add implements [store.Store].
func (s *Store) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return s.Do(ctx, &store.Call{Op: store.Add, Key: key, Value: value, TTL: ttl})
}

// Swap implements [store.Store].
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return s.Do(ctx, &store.Call{Op: store.Swap, Key: key, Old: old, Value: value, TTL: ttl})
}

// Append implements [store.Store].
func (s *Store) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return s.Do(ctx, &store.Call{Op: store.Append, Key: key, Value: item, Max: most, TTL: ttl})
}

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, key string) ([]byte, error) {
	c := &store.Call{Op: store.Take, Key: key}
	err := s.Do(ctx, c)
	return c.Value, err
}

// Delete implements [store.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.Do(ctx, &store.Call{Op: store.Delete, Key: key})
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	get := &store.Call{Op: store.Get, Key: key}
	if err := s.Do(ctx, get); err != nil {
		return nil, err
	}
	if get.Value == nil {
		return nil, store.ErrNotFound
	}
	return get.Value, nil
}

// name is the name of an entry.
func (s *Store) name(key string) string { return s.names.entry(key, s.tag(key)) }

func (s *Store) tag(key string) string { return s.names.tag(key, s.follows(key)) }

// follows reports whether changes of a key are announced.
func (s *Store) follows(key string) bool { return s.followed[store.KindOf(key)] }

var (
	_ store.Shared   = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

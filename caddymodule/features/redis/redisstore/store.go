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
	store.Singly

	connection *connection
	names      names
	clock      *clock
	steps      *stepper
	room       *room
}

// New returns a store in what the options say. It connects on first use.
func New(o Options) *Store {
	c := o.connection()
	n := names{cmp.Or(o.KeyPrefix, defaultKeyPrefix), len(o.Cluster) > 0, set(o.Followed)}
	clock := new(clock)
	s := &Store{
		connection: c, names: n, clock: clock, room: &room{connection: c, max: int64(o.MaxEntries)},
		steps: &stepper{&runner{c, o.WaitReplicas, clock}, n, set(o.Unbounded)},
	}
	s.Singly = s.Do
	return s
}

func set(kinds []string) map[string]bool {
	s := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		s[kind] = true
	}
	return s
}

// Close ends all connections. Later calls fail.
func (s *Store) Close() error { return s.connection.close() }

// Pool returns statistics of the connections.
func (s *Store) Pool() *redis.PoolStats { return s.connection.client.PoolStats() }

// Check asks the server whether state can be kept there. It fails with [ErrUnsuitable], and what
// to do, if the server must not be used as it is: wrong password, older than 6.2, a replica, or
// set to drop what is in use when it is full; it names rights that the user lacks. It fails with [store.ErrUnavailable] if there is
// no answer.
func (s *Store) Check(ctx context.Context) error {
	err := s.connection.check(ctx)
	if err == nil || isRight(err) {
		return cmp.Or(s.lacks(ctx), err)
	}
	return err
}

// Count asks for the number of keys in the database, with what other programs keep there.
func (s *Store) Count(ctx context.Context) (entries int, err error) { return s.room.count(ctx) }

// Size returns the number of keys as last counted, and the limit; 0 if the server's memory is the limit.
func (s *Store) Size() (entries, bound int) { return int(s.room.entries.Load()), int(s.room.max) }

// List implements [store.Store]. It looks at all keys of the database.
func (s *Store) List(ctx context.Context, prefix string) ([]string, error) {
	return s.scanner().list(ctx, prefix)
}

// Entries implements [store.Exporter].
func (s *Store) Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error {
	return s.scanner().entries(ctx, tell)
}

func (s *Store) scanner() scanner { return scanner{s.connection, s.names} }

// Now implements [store.Shared].
func (s *Store) Now() time.Time { return time.Now().Add(s.clock.ahead()) }

// Do implements [store.Store]. In a cluster, it is one atomic step for each run of calls of one
// slot, in order: after a run that fails, the rest are not made.
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return ctx.Err()
	}
	if err := s.room.check(ctx, s.steps.needRoom(calls), calls); err != nil {
		return err
	}
	return s.steps.step(ctx, calls)
}

var (
	_ store.Shared   = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

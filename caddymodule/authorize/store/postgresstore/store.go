package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("the PostgreSQL store is closed")

// Store is a [store.Shared] in a table of a PostgreSQL database. It connects on first use.
type Store struct {
	config Config
	pool   *pgxpool.Pool
	listen *pgx.ConnConfig
	sql    statements
	clock  clock
	room   room

	ready   atomic.Bool   // the server was checked, and the table is there
	opening chan struct{} // holds an element while one checks

	sweeping sync.Once // starts the sweeper
	closed   context.Context
	close    context.CancelFunc
	sweeper  sync.WaitGroup
}

// New returns the store that config describes. It does not connect.
func New(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	connections, err := config.connections()
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	listener, err := config.listener()
	if err != nil {
		return nil, fmt.Errorf("connection to listen: %w", err)
	}
	s := &Store{
		config: config, listen: listener, sql: statementsFor(config.Table),
		opening: make(chan struct{}, 1), room: room{most: int64(config.MaxEntries), counting: make(chan struct{}, 1)},
	}
	s.closed, s.close = context.WithCancel(context.Background())
	s.pool, err = pgxpool.NewWithConfig(s.closed, connections)
	return s, err
}

// Close ends all connections, those of Follow too. Later uses fail with [ErrClosed].
func (s *Store) Close() error {
	s.close()
	s.sweeper.Wait()
	s.pool.Close()
	return nil
}

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

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	c := &store.Call{Op: store.Get, Key: key}
	err := s.Do(ctx, c)
	if err == nil && c.Value == nil {
		err = store.ErrNotFound
	}
	return c.Value, err
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

// Do implements [store.Store].
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return nil
	}
	step, err := s.newStep(calls)
	if err != nil {
		return err
	}
	return s.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { return s.make(ctx, conn, step) })
}

// Now implements [store.Shared].
func (s *Store) Now() time.Time { return s.clock.now() }

// Size returns the number of entries as last counted, and the bound.
func (s *Store) Size() (entries, bound int) { return int(s.room.rows()), s.config.MaxEntries }

// Stat returns how many connections there are, and how many of them are in use.
func (s *Store) Stat() (connections, used int) {
	stat := s.pool.Stat()
	return int(stat.TotalConns()), int(stat.AcquiredConns())
}

var (
	_ store.Shared   = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

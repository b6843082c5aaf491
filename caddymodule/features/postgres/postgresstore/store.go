package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// ErrClosed says that the store was closed.
var ErrClosed = errors.New("the PostgreSQL store is closed")

// Store is a [store.Shared] in a table of a PostgreSQL database. It connects on first use.
type Store struct {
	store.Singly
	database *database
	room     *room
	sweeper  *sweeper
	listen   *pgx.ConnConfig
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
	db, err := newDatabase(config, connections)
	if err != nil {
		return nil, err
	}
	room := newRoom(db.sql, config.MaxEntries)
	s := &Store{database: db, room: room, sweeper: &sweeper{database: db, room: room}, listen: listener}
	s.Singly, db.opened = s.Do, s.sweeper.start
	return s, nil
}

// Open connects, checks the server, and makes the table if there is none. Each use does so
// as long as it has not succeeded. An error that is [store.ErrUnavailable] may pass; any
// other is a mistake in the configuration or at the server, and says what to do.
func (s *Store) Open(ctx context.Context) error {
	err := s.database.open(ctx)
	if err == nil || isMistake(err) {
		return telling(err)
	}
	return s.database.explain(ctx, err)
}

// Close ends all connections, those of Follow too. Later uses fail with [ErrClosed].
func (s *Store) Close() error {
	s.database.close()
	s.sweeper.running.Wait()
	s.database.pool.Close()
	return nil
}

// Do implements [store.Store].
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return nil
	}
	step, err := newStep(calls, &s.database.config)
	if err != nil {
		return err
	}
	return s.database.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return s.make(ctx, conn, step)
	})
}

// What a trial stores.
const (
	trialKind = "trial" // announced, to nobody who cares
	trialSize = 8 << 10
)

// Try is for [store.Try]: the server takes a new entry that is announced and one that is not, and deletes them.
func (s *Store) Try(ctx context.Context) error {
	id := strconv.FormatUint(rand.Uint64(), 36)
	for _, kind := range []string{trialKind, "check"} {
		key := kind + ":" + id
		if err := s.Add(ctx, key, make([]byte, trialSize), time.Minute); err != nil {
			return err
		}
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Volatile says why the server does not keep everything over its restart; empty if it does, or does not tell.
func (s *Store) Volatile(ctx context.Context) (why string) {
	_ = s.database.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { // who cannot be asked is checked anyway
		return conn.QueryRow(ctx, `SELECT CASE WHEN current_setting('fsync') = 'off' THEN 'PostgreSQL has fsync off: a crash of its host may lose everything'
			WHEN relpersistence <> 'p' THEN 'the table is UNLOGGED: a crash of PostgreSQL empties it' ELSE '' END
			FROM pg_class WHERE oid = $1::regclass`, s.database.sql.table).Scan(&why)
	})
	return why
}

// Now implements [store.Shared].
func (s *Store) Now() time.Time { return s.database.clock.now() }

// Size returns the number of entries as last counted, and the bound.
func (s *Store) Size() (entries, bound int) { return int(s.room.rows()), int(s.room.most) }

// Stat returns how many connections there are, and how many of them are in use.
func (s *Store) Stat() (connections, used int) {
	stat := s.database.pool.Stat()
	return int(stat.TotalConns()), int(stat.AcquiredConns())
}

var (
	_ store.Shared   = (*Store)(nil)
	_ store.Exporter = (*Store)(nil)
)

package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	beatEvery = time.Second           // also the maximum delay of a change with a lost notification
	pause     = 20 * time.Millisecond // between reads, to report many changes at once
	tooLong   = 30 * time.Second      // maximum time between reads: deleted rows remain for only a minute
)

// beatQuery writes to the server's log, so it fails or blocks where changes would: a
// server that is a standby or cut off from its standbys does not count as heard.
const beatQuery = `SELECT pg_logical_emit_message(true, 'caddy-fhir', '')`

// changesQuery reads the rows that a snapshot did not see. Each row, and at least one, has
// the new snapshot, the server's clock and its start time, which identifies the server.
const changesQuery = `SELECT s.snapshot, s.now, s.started, e.key, CASE WHEN NOT e.gone THEN e.value END,
		extract(epoch FROM e.expires - s.now)::float8
	FROM (SELECT pg_current_snapshot()::text AS snapshot, clock_timestamp() AS now, pg_postmaster_start_time() AS started) AS s
	LEFT JOIN {table} AS e ON e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND NOT pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
	ORDER BY e.xid`

// nothingYet is a snapshot that includes all future transactions: no row is new to it.
const nothingYet = "9223372036854775807:9223372036854775807:"

// A follower runs [Store.Subscribe].
type follower struct {
	*database
	conn     *pgx.Conn
	tell     func(store.Update)
	snapshot string    // snapshot of the latest read
	started  time.Time // start time of the server
	read     time.Time // latest read, by the server's clock
	heard    time.Time // start of the latest heartbeat
}

// Subscribe implements [store.Shared]. It uses a separate connection.
func (s *Store) Subscribe(ctx context.Context, tell func(store.Update)) error {
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.database.closed, cancel)()
	return s.database.explain(ctx, s.follow(following, tell))
}

func (s *Store) follow(ctx context.Context, tell func(store.Update)) error {
	if err := s.database.open(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, s.listener())
	if err != nil {
		return err
	}
	f := &follower{database: s.database, conn: conn, tell: tell}
	defer f.end()
	if _, err := conn.Exec(ctx, "LISTEN "+s.database.sql.channel); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.round(ctx); err != nil {
			return err
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// listener returns the configuration of the connection that listens for notifications.
func (s *Store) listener() *pgx.ConnConfig {
	c := s.listen.Copy()
	if s.database.config.ListenAddress == "" { // through the pooler, if any
		s.database.pooler.adapt(c)
	}
	return c
}

func (f *follower) end() {
	ctx, cancel := context.WithTimeout(context.Background(), f.config.Timeout)
	defer cancel()
	_ = f.conn.Close(ctx)
}

// round reads and reports changes, after a heartbeat if one is due.
func (f *follower) round(ctx context.Context) error {
	asked := time.Now()
	if asked.Sub(f.heard) >= beatEvery {
		if err := f.beat(ctx); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		f.heard = asked
	}
	if f.snapshot == "" {
		return f.whole(ctx)
	}
	last, started := f.read, f.started
	changes, err := f.changes(ctx)
	if err != nil {
		return err
	}
	if !f.started.Equal(started) || f.read.Sub(last) > tooLong {
		return f.whole(ctx)
	}
	f.tell(store.Update{Changes: changes, QueriedAt: f.heard})
	return nil
}

func (f *follower) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	_, err := f.conn.Exec(ctx, beatQuery)
	return err
}

// whole reports all entries in pages, each with its own snapshot: the next round
// repeats the changes made meanwhile.
func (f *follower) whole(ctx context.Context) error {
	f.snapshot = nothingYet
	if _, err := f.changes(ctx); err != nil {
		return err
	}
	update := store.Update{IsComplete: true, QueriedAt: f.heard}
	for _, kind := range f.config.SubscribedKinds {
		err := f.pages(ctx, kind+":", true, func(e entry) error {
			update.Changes = append(update.Changes, store.Change{Key: e.key, Value: e.value, Expires: time.Now().Add(e.ttl)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.tell(update)
	return nil
}

// changes reads the changes since the last snapshot.
func (f *follower) changes(ctx context.Context) (changes []store.Change, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	asked := time.Now()
	rows, err := f.conn.Query(ctx, f.sql.changes, f.snapshot)
	if err != nil {
		return nil, err
	}
	var key *string
	var value []byte
	var left *float64
	_, err = pgx.ForEachRow(rows, []any{&f.snapshot, &f.read, &f.started, &key, &value, &left}, func() error {
		if key != nil && f.config.follows(*key) {
			changes = append(changes, store.Change{Key: *key, Value: slices.Clone(value), Expires: time.Now().Add(seconds(*left))})
		}
		return nil
	})
	if err == nil {
		f.clock.set(f.read, asked, time.Now())
	}
	return changes, err
}

// wait waits for a notification, at most until the next heartbeat is due.
func (f *follower) wait(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, f.heard.Add(beatEvery))
	defer cancel()
	_, err := f.conn.WaitForNotification(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !f.conn.IsClosed() {
		return nil
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return err
}

// A clock is the server's clock: the latest reading, advanced by this process's monotonic
// clock.
type clock struct{ latest atomic.Pointer[reading] }

// A reading is the server's time at a local time.
type reading struct{ shown, at time.Time }

// set stores a reading. The server's time is assumed to be from the middle of the request.
func (c *clock) set(shown, asked, answered time.Time) {
	c.latest.Store(&reading{shown, asked.Add(answered.Sub(asked) / 2)})
}

func (c *clock) now() time.Time {
	latest := c.latest.Load()
	if latest == nil {
		return time.Now()
	}
	return latest.shown.Add(time.Since(latest.at))
}

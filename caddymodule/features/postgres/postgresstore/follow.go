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
	heartbeatInterval = time.Second           // also the maximum delay of a change if a notification is lost
	coalesceDelay     = 20 * time.Millisecond // pause between reads, so that many changes are reported together
	maxReadInterval   = 30 * time.Second      // maximum time between reads: deleted rows remain for only a minute
)

// heartbeatQuery writes to the server's log. It fails or blocks in the same situations as changes do: if the server is a
// standby, or is disconnected from its standbys.
const heartbeatQuery = `SELECT pg_logical_emit_message(true, 'caddy-fhir', '')`

// changesQuery reads the rows that are not visible in a snapshot. Each row also contains the new snapshot, the server's time
// and its start time, which identifies the server. If there are no changes, it returns one row with only these values.
const changesQuery = `SELECT s.snapshot, s.now, s.started, e.key, CASE WHEN NOT e.gone THEN e.value END,
		extract(epoch FROM e.expires - s.now)::float8
	FROM (SELECT pg_current_snapshot()::text AS snapshot, clock_timestamp() AS now, pg_postmaster_start_time() AS started) AS s
	LEFT JOIN {table} AS e ON e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) AND NOT pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
	ORDER BY e.xid`

// futureSnapshot is a snapshot that includes all future transactions, so no row is new compared with it.
const futureSnapshot = "9223372036854775807:9223372036854775807:"

// A follower implements [Store.Subscribe].
type follower struct {
	*database
	conn        *pgx.Conn
	report      func(store.Update)
	snapshot    string    // snapshot of the latest read
	started     time.Time // start time of the server
	readAt      time.Time // time of the latest read by the server's clock
	heartbeatAt time.Time // start of the latest heartbeat
}

// Subscribe implements [store.SharedStore]. It uses a separate connection.
func (s *Store) Subscribe(ctx context.Context, report func(store.Update)) error {
	followCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.database.closed, cancel)()
	return s.database.storeError(ctx, s.runSubscription(followCtx, report))
}

func (s *Store) runSubscription(ctx context.Context, report func(store.Update)) error {
	if err := s.database.open(ctx); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, s.listener())
	if err != nil {
		return err
	}
	f := &follower{database: s.database, conn: conn, report: report}
	defer f.close()
	if _, err := conn.Exec(ctx, "LISTEN "+s.database.sql.channel); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := f.poll(ctx); err != nil {
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
	c := s.listenConfig.Copy()
	if s.database.config.ListenAddress == "" { // through the pooler, if there is one
		s.database.pooler.setExecMode(c)
	}
	return c
}

func (f *follower) close() {
	ctx, cancel := context.WithTimeout(context.Background(), f.config.Timeout)
	defer cancel()
	_ = f.conn.Close(ctx)
}

// poll sends a heartbeat if one is due, then reads and reports changes.
func (f *follower) poll(ctx context.Context) error {
	now := time.Now()
	if now.Sub(f.heartbeatAt) >= heartbeatInterval {
		if err := f.heartbeat(ctx); err != nil {
			return fmt.Errorf("heartbeat: %w", err)
		}
		f.heartbeatAt = now
	}
	if f.snapshot == "" {
		return f.reportAll(ctx)
	}
	lastRead, started := f.readAt, f.started
	changes, err := f.changes(ctx)
	if err != nil {
		return err
	}
	if !f.started.Equal(started) || f.readAt.Sub(lastRead) > maxReadInterval {
		return f.reportAll(ctx)
	}
	f.report(store.Update{Changes: changes, QueriedAt: f.heartbeatAt})
	return nil
}

func (f *follower) heartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	_, err := f.conn.Exec(ctx, heartbeatQuery)
	return err
}

// reportAll reports all entries in pages. Each page has a separate snapshot. Changes made in the meantime are reported again by
// the next poll.
func (f *follower) reportAll(ctx context.Context) error {
	f.snapshot = futureSnapshot
	if _, err := f.changes(ctx); err != nil {
		return err
	}
	update := store.Update{IsComplete: true, QueriedAt: f.heartbeatAt}
	for _, kind := range f.config.SubscribedKinds {
		err := f.eachEntry(ctx, kind+":", true, func(e entry) error {
			update.Changes = append(update.Changes, store.Change{Key: e.key, Value: e.value, ExpiresAt: time.Now().Add(e.ttl)})
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.report(update)
	return nil
}

// changes returns the changes since the last snapshot.
func (f *follower) changes(ctx context.Context) (changes []store.Change, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	sentAt := time.Now()
	rows, err := f.conn.Query(ctx, f.sql.changes, f.snapshot)
	if err != nil {
		return nil, err
	}
	var key *string
	var value []byte
	var ttl *float64
	_, err = pgx.ForEachRow(rows, []any{&f.snapshot, &f.readAt, &f.started, &key, &value, &ttl}, func() error {
		if key != nil && f.config.isAnnounced(*key) {
			changes = append(changes, store.Change{Key: *key, Value: slices.Clone(value), ExpiresAt: time.Now().Add(secondsToDuration(*ttl))})
		}
		return nil
	})
	if err == nil {
		f.clock.update(f.readAt, sentAt, time.Now())
	}
	return changes, err
}

// wait waits for a notification, but at most until the next heartbeat is due.
func (f *follower) wait(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, f.heartbeatAt.Add(heartbeatInterval))
	defer cancel()
	_, err := f.conn.WaitForNotification(ctx)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !f.conn.IsClosed() {
		return nil
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(coalesceDelay):
		}
	}
	return err
}

// A clock is the server's clock: the latest reading, advanced by the local monotonic clock.
type clock struct{ latest atomic.Pointer[clockReading] }

// A clockReading is the server's time at a local time.
type clockReading struct{ serverTime, localTime time.Time }

// update stores a reading. It assumes that the server read its clock halfway between sent and received.
func (c *clock) update(serverTime, sent, received time.Time) {
	c.latest.Store(&clockReading{serverTime, sent.Add(received.Sub(sent) / 2)})
}

func (c *clock) now() time.Time {
	latest := c.latest.Load()
	if latest == nil {
		return time.Now()
	}
	return latest.serverTime.Add(time.Since(latest.localTime))
}

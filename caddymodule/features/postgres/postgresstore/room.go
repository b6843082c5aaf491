package postgresstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A room says how many more rows fit. Between two counts, each call that stores may have
// added a row.
type room struct {
	sql     statements
	most    int64
	counted atomic.Int64 // rows
	since   atomic.Int64 // calls that store

	counting chan struct{} // holds an element while one counts
	exact    bool          // the table was small enough to count; guarded by counting
	last     time.Time     // count; guarded by counting
}

func newRoom(sql statements, most int) *room {
	return &room{sql: sql, most: int64(most), counting: make(chan struct{}, 1)}
}

func (r *room) rows() int64 { return min(r.counted.Load()+r.since.Load(), r.most) }

// left takes n from what is left, and returns how much that was.
func (r *room) left(n int64) int64 { return r.most - r.counted.Load() - (r.since.Add(n) - n) }

// lock waits no longer than a step may take.
func (r *room) lock(ctx context.Context) error {
	select {
	case r.counting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *room) unlock() { <-r.counting }

// set takes a new count. It requires the lock.
func (r *room) set(rows int64, exact bool) {
	r.since.Store(0)
	r.counted.Store(rows)
	r.exact, r.last = exact, time.Now()
}

// recount is how often a full table is counted, if it is large.
const recount = time.Second

// free returns how many rows a step may add, of which it adds at most n. If that may be too
// few, it removes expired rows, and counts.
func (r *room) free(ctx context.Context, conn *pgxpool.Conn, n int64) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	left := r.left(n)
	if left >= n {
		return left, nil
	}
	if err := r.lock(ctx); err != nil {
		return 0, err
	}
	defer r.unlock()
	if r.exact || time.Since(r.last) >= recount {
		if _, err := r.sql.removeExpired(ctx, conn); err != nil {
			return 0, err
		}
		if err := r.count(ctx, conn); err != nil {
			return 0, err
		}
		left = r.left(n)
	}
	return max(left, 0), nil
}

// count counts the rows. It requires the lock.
func (r *room) count(ctx context.Context, conn *pgxpool.Conn) error {
	var rows int64
	var exact bool
	err := conn.QueryRow(ctx, r.sql.count).Scan(&rows, &exact)
	if err == nil {
		r.set(rows, exact)
	}
	return err
}

// The sweeper removes at most sweepRows rows at once, and sweepBatches times as many in a
// row, each sweepEvery on average.
const (
	sweepEvery   = 10 * time.Second
	sweepRows    = 500
	sweepBatches = 40
)

// A sweeper removes expired rows in the background.
type sweeper struct {
	database *database
	room     *room
	once     sync.Once
	running  sync.WaitGroup
}

// start starts the sweeper, unless it was before.
func (s *sweeper) start() { s.once.Do(func() { s.running.Go(s.sweep) }) }

// sweep removes expired rows and counts the others, until the store is closed. Gateways that
// do so at once pass over each other's rows.
func (s *sweeper) sweep() {
	for {
		select {
		case <-s.database.closed.Done():
			return
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		}
		if err := s.sweepAll(s.database.closed); err != nil && s.database.closed.Err() == nil {
			s.database.config.Logger.Debug("removing expired entries", "error", err)
		}
	}
}

func (s *sweeper) sweepAll(ctx context.Context) error {
	for range sweepBatches {
		swept := 0
		err := s.database.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			swept, err = s.database.sql.removeExpired(ctx, conn)
			return err
		})
		if err != nil {
			return err
		}
		if swept < sweepRows {
			break
		}
	}
	return s.database.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := s.room.lock(ctx); err != nil {
			return err
		}
		defer s.room.unlock()
		return s.room.count(ctx, conn)
	})
}

// removeExpired removes so many expired rows as are removed at once, and returns their number.
func (q *statements) removeExpired(ctx context.Context, conn *pgxpool.Conn) (swept int, err error) {
	err = conn.QueryRow(ctx, q.sweep, sweepRows).Scan(&swept)
	return swept, err
}

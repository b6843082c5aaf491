package postgresstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A room is the number of further rows that fit. Between two counts, each storing call
// is assumed to add a row.
type room struct {
	sql     statements
	most    int64
	counted atomic.Int64 // rows at the last count
	since   atomic.Int64 // storing calls since then

	counting chan struct{} // semaphore for counting
	exact    bool          // exact count of a small table; guarded by counting
	last     time.Time     // time of the last count; guarded by counting
}

func newRoom(sql statements, most int) *room {
	return &room{sql: sql, most: int64(most), counting: make(chan struct{}, 1)}
}

func (r *room) rows() int64 { return min(r.counted.Load()+r.since.Load(), r.most) }

// left reserves n rows. It returns the number of rows that fit before the reservation.
func (r *room) left(n int64) int64 { return r.most - r.counted.Load() - (r.since.Add(n) - n) }

// lock waits at most until ctx ends.
func (r *room) lock(ctx context.Context) error {
	select {
	case r.counting <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *room) unlock() { <-r.counting }

// set stores a new count. The caller must hold the lock.
func (r *room) set(rows int64, exact bool) {
	r.since.Store(0)
	r.counted.Store(rows)
	r.exact, r.last = exact, time.Now()
}

// recount is the minimum interval between counts of a large, full table.
const recount = time.Second

// free reserves at most n rows for a step and returns how many fit. If n may not fit, it
// removes expired rows and counts.
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

// count counts the rows. The caller must hold the lock.
func (r *room) count(ctx context.Context, conn *pgxpool.Conn) error {
	var rows int64
	var exact bool
	err := conn.QueryRow(ctx, r.sql.count).Scan(&rows, &exact)
	if err == nil {
		r.set(rows, exact)
	}
	return err
}

// The sweeper runs every sweepEvery on average. It removes up to sweepBatches batches of
// sweepRows rows.
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

// start starts the sweeper once.
func (s *sweeper) start() { s.once.Do(func() { s.running.Go(s.sweep) }) }

// sweep removes expired rows and counts the others until the store is closed. Concurrent
// gateways skip each other's locked rows.
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

// removeExpired removes a batch of expired rows. It returns the number of removed rows.
func (q *statements) removeExpired(ctx context.Context, conn *pgxpool.Conn) (swept int, err error) {
	err = conn.QueryRow(ctx, q.sweep, sweepRows).Scan(&swept)
	return swept, err
}

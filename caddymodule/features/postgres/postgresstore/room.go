package postgresstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// A capacity limits the number of rows. Between two counts, it assumes that each call that stores an entry adds a row.
type capacity struct {
	sql     statements
	limit   int64
	counted atomic.Int64 // rows at the last count
	pending atomic.Int64 // calls since then that may have added a row

	countLock chan struct{} // semaphore for counting
	exact     bool          // whether the last count was exact, as for small tables; guarded by countLock
	countedAt time.Time     // time of the last count; guarded by countLock
}

func newCapacity(sql statements, limit int) *capacity {
	return &capacity{sql: sql, limit: int64(limit), countLock: make(chan struct{}, 1)}
}

func (r *capacity) estimatedRows() int64 { return min(r.counted.Load()+r.pending.Load(), r.limit) }

// reserveRows reserves n rows. It returns the number of rows that were free before.
func (r *capacity) reserveRows(n int64) int64 {
	return r.limit - r.counted.Load() - (r.pending.Add(n) - n)
}

// lock acquires the lock. It returns an error if ctx is done first.
func (r *capacity) lock(ctx context.Context) error {
	select {
	case r.countLock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *capacity) unlock() { <-r.countLock }

// setCount stores a new count. The caller must hold the lock.
func (r *capacity) setCount(rows int64, exact bool) {
	r.pending.Store(0)
	r.counted.Store(rows)
	r.exact, r.countedAt = exact, time.Now()
}

// minCountInterval is the minimum interval between counts of a large, full table.
const minCountInterval = time.Second

// reserve reserves n rows for a step and returns how many are free. If fewer than n are free, it first removes expired rows and
// counts the rows again.
func (r *capacity) reserve(ctx context.Context, conn *pgxpool.Conn, n int64) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	available := r.reserveRows(n)
	if available >= n {
		return available, nil
	}
	if err := r.lock(ctx); err != nil {
		return 0, err
	}
	defer r.unlock()
	if r.exact || time.Since(r.countedAt) >= minCountInterval {
		if _, err := r.sql.removeExpired(ctx, conn); err != nil {
			return 0, err
		}
		if err := r.count(ctx, conn); err != nil {
			return 0, err
		}
		available = r.reserveRows(n)
	}
	return max(available, 0), nil
}

// count counts the rows. The caller must hold the lock.
func (r *capacity) count(ctx context.Context, conn *pgxpool.Conn) error {
	var rows int64
	var exact bool
	err := conn.QueryRow(ctx, r.sql.count).Scan(&rows, &exact)
	if err == nil {
		r.setCount(rows, exact)
	}
	return err
}

// The sweeper runs every sweepInterval on average. Each run removes up to maxSweepBatches batches of sweepBatchSize rows.
const (
	sweepInterval   = 10 * time.Second
	sweepBatchSize  = 500
	maxSweepBatches = 40
)

// A sweeper removes expired rows in the background.
type sweeper struct {
	database *database
	capacity *capacity
	once     sync.Once
	running  sync.WaitGroup
}

// start starts the sweeper, unless it is already running.
func (s *sweeper) start() { s.once.Do(func() { s.running.Go(s.run) }) }

// run periodically removes expired rows and counts the others, until the store is closed. Gateways skip rows that others have
// locked.
func (s *sweeper) run() {
	for {
		select {
		case <-s.database.closed.Done():
			return
		case <-time.After(sweepInterval/2 + rand.N(sweepInterval)):
		}
		if err := s.removeAllExpired(s.database.closed); err != nil && s.database.closed.Err() == nil {
			s.database.config.Logger.Debug("removing expired entries", "error", err)
		}
	}
}

func (s *sweeper) removeAllExpired(ctx context.Context) error {
	for range maxSweepBatches {
		removed := 0
		err := s.database.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			removed, err = s.database.sql.removeExpired(ctx, conn)
			return err
		})
		if err != nil {
			return err
		}
		if removed < sweepBatchSize {
			break
		}
	}
	return s.database.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := s.capacity.lock(ctx); err != nil {
			return err
		}
		defer s.capacity.unlock()
		return s.capacity.count(ctx, conn)
	})
}

// removeExpired removes a batch of expired rows and returns their number.
func (q *statements) removeExpired(ctx context.Context, conn *pgxpool.Conn) (removed int, err error) {
	err = conn.QueryRow(ctx, q.sweep, sweepBatchSize).Scan(&removed)
	return removed, err
}

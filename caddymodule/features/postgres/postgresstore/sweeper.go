package postgresstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

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

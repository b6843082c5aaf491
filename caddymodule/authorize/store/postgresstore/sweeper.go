package postgresstore

import (
	"context"
	"math/rand/v2"
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

// sweep removes expired rows and counts the others, until the store is closed. Gateways that
// do so at once pass over each other's rows.
func (s *Store) sweep() {
	for {
		select {
		case <-s.closed.Done():
			return
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		}
		if err := s.sweepAll(s.closed); err != nil && s.closed.Err() == nil {
			s.config.Logger.Debug("removing expired entries", "error", err)
		}
	}
}

func (s *Store) sweepAll(ctx context.Context) error {
	for range sweepBatches {
		swept := 0
		err := s.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
			swept, err = s.sweepOnce(ctx, conn)
			return err
		})
		if err != nil {
			return err
		}
		if swept < sweepRows {
			break
		}
	}
	return s.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := s.room.lock(ctx); err != nil {
			return err
		}
		defer s.room.unlock()
		return s.count(ctx, conn)
	})
}

func (s *Store) sweepOnce(ctx context.Context, conn *pgxpool.Conn) (swept int, err error) {
	err = conn.QueryRow(ctx, s.sql.sweep, sweepRows).Scan(&swept)
	return swept, err
}

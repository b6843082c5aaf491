package postgresstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxTrials is how often something is tried within its time.
const maxTrials = 4

// within makes something by a connection of the pool, within the time of a step: again if the
// connection was lost or two transactions collided. What is made must be repeatable.
func (s *Store) within(caller context.Context, make func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(caller, s.config.Timeout)
	defer cancel()
	for trial := 1; ; trial++ {
		err := s.tryOnce(ctx, make)
		switch {
		case err == nil || isAnswer(err):
			return err
		case trial == maxTrials || ctx.Err() != nil || !repeatable(err):
			return s.explain(caller, err)
		}
	}
}

func (s *Store) tryOnce(ctx context.Context, make func(context.Context, *pgxpool.Conn) error) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = make(ctx, conn); err != nil {
		s.doubt(ctx, conn, err)
	}
	return err
}

// doubt ends what an error shows to be of no use: the server may be another by now.
func (s *Store) doubt(ctx context.Context, conn *pgxpool.Conn, err error) {
	switch code(err) {
	case readOnlyTransaction:
		_ = conn.Conn().Close(ctx)
		s.pool.Reset()
		s.ready.Store(false)
	case undefinedTable, undefinedFunction:
		s.ready.Store(false)
	}
	if conn.Conn().IsClosed() && ctx.Err() == nil {
		s.pool.Reset() // the others are lost too, most likely
	}
}

// The codes of PostgreSQL's errors (appendix A of its manual) that mean something here.
const (
	readOnlyTransaction  = "25006"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	insufficientRights   = "42501"
	undefinedFunction    = "42883"
	undefinedTable       = "42P01"
	diskFull             = "53100"
)

// code is that of a server's error, or empty.
func code(err error) string {
	if failure, ok := errors.AsType[*pgconn.PgError](err); ok {
		return failure.Code
	}
	return ""
}

// isAnswer reports whether an error is what the store answers, not a failure of it.
func isAnswer(err error) bool {
	for _, answer := range []error{store.ErrNotFound, store.ErrExists, store.ErrChanged, store.ErrFull, store.ErrTooLong} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// repeatable reports whether a further trial may succeed: after a lost connection, after
// what the server undid, or as the table has to be made again.
func repeatable(err error) bool {
	switch c := code(err); c {
	case "":
		dialing, ok := errors.AsType[*net.OpError](err)
		return !(ok && dialing.Op == "dial") && !errors.Is(err, errUnusable)
	case serializationFailure, deadlockDetected, undefinedFunction, undefinedTable:
		return true
	default:
		return c[:3] == "57P" // the server ends, or the connection
	}
}

// explain makes an error that of a [store.Store]: the caller's own, if it did not wait.
func (s *Store) explain(caller context.Context, err error) error {
	switch {
	case s.closed.Err() != nil:
		return ErrClosed
	case caller.Err() != nil:
		return caller.Err()
	case code(err) == diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return fmt.Errorf("%w: %v", store.ErrUnavailable, err) // not the end of a context, which would be the caller's
}

// isMistake reports whether only whoever configured the store or the server can mend it:
// wrong credentials, no such database, no rights, a server that takes no changes, another
// certificate than expected.
func isMistake(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, errUnusable) {
		return true
	}
	c := code(err)
	if len(c) != 5 {
		return false
	}
	switch c[:2] {
	case "28", "3D", "3F", "42": // authorization, no database, no schema, rights
		return true
	}
	return false
}

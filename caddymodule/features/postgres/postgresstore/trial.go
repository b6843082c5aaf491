package postgresstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// maxTrials is how often something is tried within its time.
const maxTrials = 4

// within uses a connection of the pool, within the time of a step: again if the connection was
// lost or two transactions collided. The use must be repeatable.
func (d *database) within(caller context.Context, use func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(caller, d.config.Timeout)
	defer cancel()
	for trial := 1; ; trial++ {
		err := d.tryOnce(ctx, use)
		switch {
		case err == nil || isAnswer(err):
			return err
		case trial == maxTrials || ctx.Err() != nil || !repeatable(err):
			return d.explain(caller, err)
		}
	}
}

func (d *database) tryOnce(ctx context.Context, use func(context.Context, *pgxpool.Conn) error) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = use(ctx, conn); err != nil {
		d.doubt(ctx, conn, err)
	}
	return err
}

// doubt ends what an error shows to be of no use: the server may be another by now.
func (d *database) doubt(ctx context.Context, conn *pgxpool.Conn, err error) {
	switch code(err) {
	case readOnlyTransaction:
		_ = conn.Conn().Close(ctx)
		d.pool.Reset()
		d.ready.Store(false)
	case undefinedTable, undefinedFunction, insufficientRights: // it is checked again, which names the right
		d.ready.Store(false)
	}
	if conn.Conn().IsClosed() && ctx.Err() == nil {
		d.pool.Reset() // the others are lost too, most likely
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
	refusedByHost        = "28000" // pg_hba.conf, perhaps of this way to connect alone
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

// repeatable reports whether a further trial may succeed, or tell more: after a lost connection, after
// what the server undid, as the table has to be made again, or as the right that lacks is named then.
func repeatable(err error) bool {
	if errors.Is(err, errUnusable) {
		return false
	}
	switch c := code(err); c {
	case "":
		dialing, ok := errors.AsType[*net.OpError](err)
		return !(ok && dialing.Op == "dial")
	case serializationFailure, deadlockDetected, undefinedFunction, undefinedTable, insufficientRights:
		return true
	default:
		return c[:3] == "57P" // the server ends, or the connection
	}
}

// attempts are why none of several attempts to connect succeeded.
type attempts []error

// Error implements error.
func (a attempts) Error() string {
	var texts []string
	for _, err := range a {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap is for [errors.Is].
func (a attempts) Unwrap() []error { return a }

// telling keeps the part of a connection error that says its cause. Where TLS is optional, each address is tried twice: what the
// server says counts, and not that it refuses TLS, or to go without.
func telling(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	joined, ok := failed.Unwrap().(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var kept attempts
	byAddress := map[string]int{}
	for _, attempt := range joined.Unwrap() {
		address, _, _ := strings.Cut(attempt.Error(), " ")
		i, again := byAddress[address]
		switch {
		case !again:
			byAddress[address] = len(kept)
			kept = append(kept, attempt)
		case code(kept[i]) == "" || code(kept[i]) == refusedByHost && code(attempt) != "":
			kept[i] = attempt
		}
	}
	return kept
}

// explain makes an error that of a [store.Store]: the caller's own, if it did not wait.
func (d *database) explain(caller context.Context, err error) error {
	switch {
	case d.closed.Err() != nil:
		return ErrClosed
	case caller.Err() != nil:
		return caller.Err()
	case code(err) == diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case code(err) == insufficientRights, errors.Is(err, errRights):
		return &store.Fault{Cause: store.CauseRights, Err: fmt.Errorf("the store refuses it to the role: %w", err)}
	}
	return fmt.Errorf("%w: %s", store.ErrUnavailable, fmt.Sprint(telling(err))) // not wrapped: it may be the end of a context, but not of the caller's
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

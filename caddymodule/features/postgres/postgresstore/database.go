package postgresstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A database has the table of a [Store]. It is opened on first use.
type database struct {
	config Config
	pool   *pgxpool.Pool
	sql    statements
	clock  clock
	pooler pooler

	ready   atomic.Bool   // the server was checked, and the table is there
	opening chan struct{} // holds an element while one checks
	opened  func()        // called each time it was opened

	closed context.Context
	close  context.CancelFunc
}

func newDatabase(config Config, connections *pgxpool.Config) (d *database, err error) {
	d = &database{config: config, sql: statementsFor(config.Table), opening: make(chan struct{}, 1)}
	d.closed, d.close = context.WithCancel(context.Background())
	d.pooler.watch(config, connections)
	d.pool, err = pgxpool.NewWithConfig(d.closed, connections)
	return d, err
}

const (
	oldestServer  = 13_00_00 // the first with xid8
	schemaVersion = 1
)

// errUnusable is why a server cannot be used at all.
var errUnusable = errors.New("the PostgreSQL store cannot be used")

// open connects, checks the server, and makes the table if there is none, unless it did so
// before.
func (d *database) open(ctx context.Context) error {
	if d.ready.Load() {
		return nil
	}
	select {
	case d.opening <- struct{}{}:
		defer func() { <-d.opening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.ready.Load() { // opened by another while we waited
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	err := d.prepareAny(ctx)
	if errors.Is(err, errPooled) {
		d.pool.Reset()
		err = d.prepareAny(ctx)
	}
	if err == nil {
		d.ready.Store(true)
		d.opened()
	}
	return err
}

// prepareAny prepares by any connection.
func (d *database) prepareAny(ctx context.Context) error {
	return d.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := d.prepare(ctx, conn)
		if err != nil {
			d.doubt(ctx, conn, err)
		}
		return err
	})
}

// aboutServer asks for what a server must be, before it is known whether statements can be prepared.
const aboutServer = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
	current_setting('server_version_num')::integer, clock_timestamp(), pg_backend_pid()`

// prepare checks the server, and makes the table if there is none.
func (d *database) prepare(ctx context.Context, conn *pgxpool.Conn) error {
	asked := time.Now()
	var readOnly bool
	var server int
	var now time.Time
	var process uint32
	err := conn.QueryRow(ctx, aboutServer, pgx.QueryExecModeExec).Scan(&readOnly, &server, &now, &process)
	switch {
	case err != nil:
		return err
	case server < oldestServer:
		return fmt.Errorf("%w: its server is PostgreSQL %d, and 13 is the oldest that can be", errUnusable, server/10_000)
	case readOnly:
		_ = conn.Conn().Close(ctx) // the next one may be to another server of that name
		return fmt.Errorf("%w: the server takes no changes, as a standby does: name the primary, or all of them (host, or target_session_attrs=read-write in the dsn)", errUnusable)
	}
	d.clock.set(now, asked, time.Now())
	if err := d.pooler.find(conn.Conn(), process); err != nil {
		return err
	}
	version, err := d.version(ctx, conn)
	if err == nil && version != schemaVersion {
		err = d.migrate(ctx, conn)
	}
	if err != nil {
		return err
	}
	return d.checkRights(ctx, conn)
}

// errRights is of a role that may not do all that gateways do.
var errRights = errors.New("it lacks rights")

// lackedRights are those of the role on the table, and to execute what changes it.
const lackedRights = `SELECT coalesce(string_agg(p, ', '), '') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
	WHERE NOT has_table_privilege($1, p)`

func (d *database) checkRights(ctx context.Context, conn *pgxpool.Conn) error {
	var lacks string
	err := conn.QueryRow(ctx, lackedRights, d.sql.table).Scan(&lacks)
	if err == nil && lacks != "" {
		return fmt.Errorf("%w: %w: %s on the table %[4]s: GRANT %[3]s ON %[4]s TO the role that gateways use", errUnusable, errRights, lacks, d.sql.table)
	}
	return err
}

const versionComment = "caddy-fhir store, version "

// version is that of the table; 0 if there is none.
func (d *database) version(ctx context.Context, conn interface {
	QueryRow(context.Context, string, ...any) pgx.Row
},
) (int, error) {
	var exists bool
	var comment string
	err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, coalesce(obj_description(to_regclass($1), 'pg_class'), '')`, d.sql.table).Scan(&exists, &comment)
	if code(err) == insufficientRights {
		return 0, fmt.Errorf("%w: %w on the schema of the table %s: %w: GRANT USAGE ON SCHEMA … TO the role that gateways use", errUnusable, errRights, d.sql.table, err)
	}
	if err != nil || !exists {
		return 0, err
	}
	version, err := strconv.Atoi(strings.TrimPrefix(comment, versionComment))
	switch {
	case err != nil || !strings.HasPrefix(comment, versionComment):
		return 0, fmt.Errorf("%w: the table %s has no comment that tells its version: if it is another's, name a table of its own (table); if it came from a dump without comments, give it the comment '%s%d'", errUnusable, d.sql.table, versionComment, schemaVersion)
	case version > schemaVersion:
		return 0, fmt.Errorf("%w: the table %s is of version %d, made by a newer gateway, and this one knows %d: upgrade it", errUnusable, d.sql.table, version, schemaVersion)
	}
	return version, nil
}

// migrate makes the table, unless another gateway has just done so.
func (d *database) migrate(ctx context.Context, conn *pgxpool.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('caddy-fhir store ' || $1, 0))", d.sql.table); err != nil {
			return err
		}
		version, err := d.version(ctx, tx)
		if err != nil || version == schemaVersion {
			return err
		}
		_, err = tx.Conn().PgConn().Exec(ctx, d.sql.schema).ReadAll()
		return err
	})
	if code(err) == insufficientRights {
		return fmt.Errorf("%w: making the table %s: %w: grant the role CREATE on the schema, or make the table as its owner with what is in schema.sql", errUnusable, d.sql.table, err)
	}
	return err
}

// execMode is the word in a connection string that says how statements are executed.
const execMode = "default_query_exec_mode"

// A pooler, such as PgBouncer, may stand before the server, and give each transaction another of
// its connections. A statement that was prepared on one of them is not there on the next. So
// through a pooler, none is prepared by name, which costs the server the planning of each call.
// Whether the pooler would keep them cannot be known: the connection string can say so.
type pooler struct {
	chosen bool        // the connection string says how statements are executed
	found  atomic.Bool // there is one
}

// errPooled says that the connection must be made again.
var errPooled = errors.New("there is a pooler before the server")

// watch adapts the connections that are to come.
func (p *pooler) watch(config Config, connections *pgxpool.Config) {
	p.chosen = strings.Contains(config.DSN, execMode)
	connections.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { p.adapt(c); return nil }
	// A pooler may pass on what another of its clients listens for. pgx would keep that for ever.
	connections.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
}

func (p *pooler) adapt(c *pgx.ConnConfig) {
	if p.found.Load() && !p.chosen {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// find looks for a pooler, by the id of the process that serves a connection: a server names its
// own when the connection is made, a pooler one that it has made up. At the first time it reports
// that connections must be made again.
func (p *pooler) find(conn *pgx.Conn, process uint32) error {
	if conn.PgConn().PID() == process || p.found.Swap(true) || p.chosen {
		return nil
	}
	return errPooled
}

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

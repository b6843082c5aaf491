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

// A database is the connection to the table of a [Store]. It is opened on first use.
type database struct {
	config Config
	pool   *pgxpool.Pool
	sql    statements
	clock  clock
	pooler poolerDetector

	opened   atomic.Bool   // whether the server was checked and the table exists
	openSlot chan struct{} // semaphore for opening
	onOpen   func()        // called after each opening

	closed context.Context
	close  context.CancelFunc
}

func newDatabase(config Config, connections *pgxpool.Config) (d *database, err error) {
	d = &database{config: config, sql: statementsFor(config.Table), openSlot: make(chan struct{}, 1)}
	d.closed, d.close = context.WithCancel(context.Background())
	d.pooler.configurePool(config, connections)
	d.pool, err = pgxpool.NewWithConfig(d.closed, connections)
	return d, err
}

const (
	minServerVersion = 13_00_00 // first version with the type xid8
	schemaVersion    = 1
)

// errUnusable is returned for a server that is not suitable at all.
var errUnusable = errors.New("the PostgreSQL store cannot be used")

// open connects, checks the server and creates the table, unless this has already been done.
func (d *database) open(ctx context.Context) error {
	if d.opened.Load() {
		return nil
	}
	select {
	case d.openSlot <- struct{}{}:
		defer func() { <-d.openSlot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if d.opened.Load() { // opened concurrently
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	err := d.prepareAny(ctx)
	if errors.Is(err, errPoolerDetected) {
		d.pool.Reset()
		err = d.prepareAny(ctx)
	}
	if err == nil {
		d.opened.Store(true)
		d.onOpen()
	}
	return err
}

// prepareAny runs prepare on any connection of the pool.
func (d *database) prepareAny(ctx context.Context) error {
	return d.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := d.prepare(ctx, conn)
		if err != nil {
			d.resetState(ctx, conn, err)
		}
		return err
	})
}

// serverQuery reads the server's properties. It is not a prepared statement, because a pooler may not support those.
const serverQuery = `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
	current_setting('server_version_num')::integer, clock_timestamp(), pg_backend_pid()`

// prepare checks the server and creates the table if it is missing.
func (d *database) prepare(ctx context.Context, conn *pgxpool.Conn) error {
	sentAt := time.Now()
	var readOnly bool
	var serverVersion int
	var now time.Time
	var backendPID uint32
	err := conn.QueryRow(ctx, serverQuery, pgx.QueryExecModeExec).Scan(&readOnly, &serverVersion, &now, &backendPID)
	switch {
	case err != nil:
		return err
	case serverVersion < minServerVersion:
		return fmt.Errorf("%w: PostgreSQL %d is too old: 13 or newer is required", errUnusable, serverVersion/10_000)
	case readOnly:
		_ = conn.Conn().Close(ctx) // the next connection may reach another server with this name
		return fmt.Errorf("%w: the server is read-only, such as a standby: set dsn to the primary, or to all hosts with target_session_attrs=read-write", errUnusable)
	}
	d.clock.update(now, sentAt, time.Now())
	if err := d.pooler.detect(conn.Conn(), backendPID); err != nil {
		return err
	}
	version, err := d.readSchemaVersion(ctx, conn)
	if err == nil && version != schemaVersion {
		err = d.migrate(ctx, conn)
	}
	if err != nil {
		return err
	}
	return d.checkPrivileges(ctx, conn)
}

// errMissingPrivileges is returned if the role lacks privileges that gateways need.
var errMissingPrivileges = errors.New("missing privileges")

// missingPrivilegesQuery lists the table privileges that the role lacks.
const missingPrivilegesQuery = `SELECT coalesce(string_agg(p, ', '), '') FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
	WHERE NOT has_table_privilege($1, p)`

func (d *database) checkPrivileges(ctx context.Context, conn *pgxpool.Conn) error {
	var missing string
	err := conn.QueryRow(ctx, missingPrivilegesQuery, d.sql.table).Scan(&missing)
	if err == nil && missing != "" {
		return fmt.Errorf("%w: %w: %s on table %[4]s: GRANT %[3]s ON %[4]s TO the gateways' role", errUnusable, errMissingPrivileges, missing, d.sql.table)
	}
	return err
}

const versionCommentPrefix = "caddy-fhir store, version "

// readSchemaVersion returns the schema version of the table, or 0 if the table does not exist.
func (d *database) readSchemaVersion(ctx context.Context, conn interface {
	QueryRow(context.Context, string, ...any) pgx.Row
},
) (int, error) {
	var exists bool
	var comment string
	err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, coalesce(obj_description(to_regclass($1), 'pg_class'), '')`, d.sql.table).Scan(&exists, &comment)
	if sqlState(err) == insufficientPrivilege {
		return 0, fmt.Errorf("%w: %w on the schema of table %s: %w: GRANT USAGE ON SCHEMA … TO the gateways' role", errUnusable, errMissingPrivileges, d.sql.table, err)
	}
	if err != nil || !exists {
		return 0, err
	}
	version, err := strconv.Atoi(strings.TrimPrefix(comment, versionCommentPrefix))
	switch {
	case err != nil || !strings.HasPrefix(comment, versionCommentPrefix):
		return 0, fmt.Errorf("%w: table %s has no comment with a schema version: if another program uses it, set the option table to another name; if it was restored without comments, add the comment '%s%d'", errUnusable, d.sql.table, versionCommentPrefix, schemaVersion)
	case version > schemaVersion:
		return 0, fmt.Errorf("%w: table %s has schema version %d, but this gateway supports only %d: upgrade the gateway", errUnusable, d.sql.table, version, schemaVersion)
	}
	return version, nil
}

// migrate creates the table, unless another gateway has created it in the meantime.
func (d *database) migrate(ctx context.Context, conn *pgxpool.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('caddy-fhir store ' || $1, 0))", d.sql.table); err != nil {
			return err
		}
		version, err := d.readSchemaVersion(ctx, tx)
		if err != nil || version == schemaVersion {
			return err
		}
		_, err = tx.Conn().PgConn().Exec(ctx, d.sql.schema).ReadAll()
		return err
	})
	if sqlState(err) == insufficientPrivilege {
		return fmt.Errorf("%w: creating table %s: %w: grant the role CREATE on the schema, or run schema.sql as the schema's owner", errUnusable, d.sql.table, err)
	}
	return err
}

// execModeParameter is the connection string parameter that sets the execution mode of statements.
const execModeParameter = "default_query_exec_mode"

// A pooler detects poolers such as PgBouncer. They may run each transaction on another server connection, where earlier
// prepared statements do not exist. With such a pooler, statements are therefore sent without names, so that each call has to
// be planned. A pooler that supports prepared statements cannot be detected: set the mode in the connection string.
type poolerDetector struct {
	modeConfigured bool        // whether the connection string sets the execution mode
	detected       atomic.Bool // whether a pooler was detected
}

// errPoolerDetected is returned when a pooler is first detected. New connections are then required.
var errPoolerDetected = errors.New("a connection pooler was detected")

// configurePool sets the execution mode of new connections.
func (p *poolerDetector) configurePool(config Config, connections *pgxpool.Config) {
	p.modeConfigured = strings.Contains(config.DSN, execModeParameter)
	connections.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { p.setExecMode(c); return nil }
	// A pooler may forward notifications for other clients. pgx would buffer them indefinitely.
	connections.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
}

func (p *poolerDetector) setExecMode(c *pgx.ConnConfig) {
	if p.detected.Load() && !p.modeConfigured {
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// detect detects a pooler: the server process ID received at connection setup differs from the process ID of the backend. When
// a pooler is first detected, it returns errPoolerDetected, so that the caller reconnects.
func (p *poolerDetector) detect(conn *pgx.Conn, backendPID uint32) error {
	if conn.PgConn().PID() == backendPID || p.detected.Swap(true) || p.modeConfigured {
		return nil
	}
	return errPoolerDetected
}

// maxTries is the maximum number of attempts within the time limit of a step.
const maxTries = 4

// withConn calls do with a pooled connection within the time limit of a step. It retries after a lost connection or a
// transaction conflict, so do must be repeatable.
func (d *database) withConn(caller context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(caller, d.config.Timeout)
	defer cancel()
	for try := 1; ; try++ {
		err := d.tryOnce(ctx, do)
		switch {
		case err == nil || isStoreResult(err):
			return err
		case try == maxTries || ctx.Err() != nil || !isRetryable(err):
			return d.storeError(caller, err)
		}
	}
}

func (d *database) tryOnce(ctx context.Context, do func(context.Context, *pgxpool.Conn) error) error {
	if err := d.open(ctx); err != nil {
		return err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err = do(ctx, conn); err != nil {
		d.resetState(ctx, conn, err)
	}
	return err
}

// resetState discards state that may be invalid after an error: the server may have been replaced.
func (d *database) resetState(ctx context.Context, conn *pgxpool.Conn, err error) {
	switch sqlState(err) {
	case readOnlyTransaction:
		_ = conn.Conn().Close(ctx)
		d.pool.Reset()
		d.opened.Store(false)
	case undefinedTable, undefinedFunction, insufficientPrivilege: // open checks again, and its error contains the missing privilege
		d.opened.Store(false)
	}
	if conn.Conn().IsClosed() && ctx.Err() == nil {
		d.pool.Reset() // the other connections are probably lost as well
	}
}

// PostgreSQL error codes (appendix A of its manual) that are handled separately.
const (
	readOnlyTransaction   = "25006"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	insufficientPrivilege = "42501"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	diskFull              = "53100"
	invalidAuthorization  = "28000" // rejected by pg_hba.conf, possibly only for this connection type
)

// sqlState returns the SQLSTATE of a server error, or "".
func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}

// isStoreResult reports whether an error is a result of the store, such as a conflict, rather than a failure.
func isStoreResult(err error) bool {
	for _, result := range []error{store.ErrNotFound, store.ErrExists, store.ErrChanged, store.ErrFull, store.ErrTooLong} {
		if errors.Is(err, result) {
			return true
		}
	}
	return false
}

// isRetryable reports whether a retry may succeed or return a better error: after a lost connection or a rollback by the
// server, after the loss of the table, or to determine the missing privilege.
func isRetryable(err error) bool {
	if errors.Is(err, errUnusable) {
		return false
	}
	switch c := sqlState(err); c {
	case "":
		opErr, ok := errors.AsType[*net.OpError](err)
		return !(ok && opErr.Op == "dial")
	case serializationFailure, deadlockDetected, undefinedFunction, undefinedTable, insufficientPrivilege:
		return true
	default:
		return c[:3] == "57P" // shutdown of the server or session
	}
}

// connectErrors are the errors of several connection attempts.
type connectErrors []error

func (a connectErrors) Error() string {
	var messages []string
	for _, err := range a {
		messages = append(messages, err.Error())
	}
	return strings.Join(messages, "; ")
}

// Unwrap supports [errors.Is].
func (a connectErrors) Unwrap() []error { return a }

// rootCause returns the cause of a connection error. If TLS is optional, each address is tried twice, with and without TLS. An
// error from the server itself takes precedence over its rejection of TLS or plain text.
func rootCause(err error) error {
	connectErr, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	joined, ok := connectErr.Unwrap().(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var causes connectErrors
	byAddress := map[string]int{}
	for _, attempt := range joined.Unwrap() {
		address, _, _ := strings.Cut(attempt.Error(), " ")
		i, seen := byAddress[address]
		switch {
		case !seen:
			byAddress[address] = len(causes)
			causes = append(causes, attempt)
		case sqlState(causes[i]) == "" || sqlState(causes[i]) == invalidAuthorization && sqlState(attempt) != "":
			causes[i] = attempt
		}
	}
	return causes
}

// storeError converts an error to an error of [store.Store]. If the caller's context is done, it returns that context's error.
func (d *database) storeError(caller context.Context, err error) error {
	switch {
	case d.closed.Err() != nil:
		return ErrClosed
	case caller.Err() != nil:
		return caller.Err()
	case sqlState(err) == diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case sqlState(err) == insufficientPrivilege, errors.Is(err, errMissingPrivileges):
		return &store.Fault{Cause: store.CausePermissions, Err: fmt.Errorf("PostgreSQL denied the operation: the role lacks privileges: %w", err)}
	}
	return fmt.Errorf("%w: %s", store.ErrUnavailable, fmt.Sprint(rootCause(err))) // not wrapped: it may be a context error, but not the caller's
}

// isConfigurationError reports whether the configuration or the server must be changed: wrong credentials, a missing database
// or privilege, a read-only server, or an unexpected certificate.
func isConfigurationError(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.Is(err, errUnusable) {
		return true
	}
	c := sqlState(err)
	if len(c) != 5 {
		return false
	}
	switch c[:2] {
	case "28", "3D", "3F", "42": // authorization, missing database, missing schema, missing privileges
		return true
	}
	return false
}

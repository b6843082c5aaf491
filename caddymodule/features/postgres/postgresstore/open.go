package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

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

package postgresstore

import (
	"context"
	_ "embed"
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

//go:embed schema.sql
var schema string

// statements are those of a table.
type statements struct {
	schema, do, get, sweep, count string
	page, changes                 string
	table, channel                string
}

func statementsFor(table string) statements {
	bare := table[strings.LastIndex(table, ".")+1:]
	name := strings.NewReplacer(
		"{table}", table, "{do}", table+"_do_1", "{get}", table+"_get_1", "{sweep}", table+"_sweep_1",
		"{count}", table+"_count_1", "{expires}", bare+"_expires", "{xid}", bare+"_xid",
	).Replace
	return statements{
		table: table, channel: bare, schema: name(schema),
		do:    name("CALL {do}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, NULL, NULL)"),
		get:   name("SELECT {get}($1)"),
		sweep: name("SELECT {sweep}($1)"),
		count: name("SELECT entries, exact FROM {count}()"),
		page:  name(pageQuery), changes: name(changesQuery),
	}
}

// Open connects, checks the server, and makes the table if there is none. Each use does so
// as long as it has not succeeded. An error that is [store.ErrUnavailable] may pass; any
// other is a mistake in the configuration or at the server, and says what to do.
func (s *Store) Open(ctx context.Context) error {
	err := s.open(ctx)
	if err == nil || isMistake(err) {
		return err
	}
	return s.explain(ctx, err)
}

func (s *Store) open(ctx context.Context) error {
	if s.ready.Load() {
		return nil
	}
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.ready.Load() { // opened by another while we waited
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	err := s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := s.prepare(ctx, conn)
		if err != nil {
			s.doubt(ctx, conn, err)
		}
		return err
	})
	if err == nil {
		s.ready.Store(true)
		s.sweeping.Do(func() { s.sweeper.Go(s.sweep) })
	}
	return err
}

// prepare checks the server, and makes the table if there is none.
func (s *Store) prepare(ctx context.Context, conn *pgxpool.Conn) error {
	asked := time.Now()
	var readOnly bool
	var server int
	var now time.Time
	err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean,
		current_setting('server_version_num')::integer, clock_timestamp()`).Scan(&readOnly, &server, &now)
	switch {
	case err != nil:
		return err
	case server < oldestServer:
		return fmt.Errorf("%w: its server is PostgreSQL %d, and 13 is the oldest that can be", errUnusable, server/10_000)
	case readOnly:
		_ = conn.Conn().Close(ctx) // the next one may be to another server of that name
		return fmt.Errorf("%w: the server takes no changes, as a standby does: name the primary, or all of them (host, or target_session_attrs=read-write in the dsn)", errUnusable)
	}
	s.clock.set(now, asked, time.Now())
	version, err := s.version(ctx, conn)
	if err != nil || version == schemaVersion {
		return err
	}
	return s.migrate(ctx, conn)
}

const versionComment = "caddy-fhir store, version "

// version is that of the table; 0 if there is none.
func (s *Store) version(ctx context.Context, conn interface {
	QueryRow(context.Context, string, ...any) pgx.Row
},
) (int, error) {
	var exists bool
	var comment string
	err := conn.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL, coalesce(obj_description(to_regclass($1), 'pg_class'), '')`, s.sql.table).Scan(&exists, &comment)
	if err != nil || !exists {
		return 0, err
	}
	version, err := strconv.Atoi(strings.TrimPrefix(comment, versionComment))
	switch {
	case err != nil || !strings.HasPrefix(comment, versionComment):
		return 0, fmt.Errorf("%w: the table %s has no comment that tells its version: if it is another's, name a table of its own (table); if it came from a dump without comments, give it the comment '%s%d'", errUnusable, s.sql.table, versionComment, schemaVersion)
	case version > schemaVersion:
		return 0, fmt.Errorf("%w: the table %s is of version %d, made by a newer gateway, and this one knows %d: upgrade it", errUnusable, s.sql.table, version, schemaVersion)
	}
	return version, nil
}

// migrate makes the table, unless another gateway has just done so.
func (s *Store) migrate(ctx context.Context, conn *pgxpool.Conn) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('caddy-fhir store ' || $1, 0))", s.sql.table); err != nil {
			return err
		}
		version, err := s.version(ctx, tx)
		if err != nil || version == schemaVersion {
			return err
		}
		_, err = tx.Conn().PgConn().Exec(ctx, s.sql.schema).ReadAll()
		return err
	})
	if code(err) == insufficientRights {
		return fmt.Errorf("%w: making the table %s: %w: grant the role CREATE on the schema, or make the table as its owner with what is in schema.sql", errUnusable, s.sql.table, err)
	}
	return err
}

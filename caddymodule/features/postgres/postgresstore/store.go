package postgresstore

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// ErrClosed is returned by calls after [Store.Close].
var ErrClosed = errors.New("the PostgreSQL store is closed")

// Store is a [store.SharedStore] in a table of a PostgreSQL database. It connects on first use.
type Store struct {
	store.CallRunner
	database     *database
	capacity     *capacity
	sweeper      *sweeper
	listenConfig *pgx.ConnConfig
}

// New returns a store with the given configuration. It does not connect.
func New(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, err
	}
	connections, err := config.poolConfig()
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	listener, err := config.listenConfig()
	if err != nil {
		return nil, fmt.Errorf("listening connection: %w", err)
	}
	db, err := newDatabase(config, connections)
	if err != nil {
		return nil, err
	}
	room := newCapacity(db.sql, config.MaxEntries)
	s := &Store{database: db, capacity: room, sweeper: &sweeper{database: db, capacity: room}, listenConfig: listener}
	s.CallRunner, db.onOpen = s.Do, s.sweeper.start
	return s, nil
}

// Open connects, checks the server and creates the table if it is missing. Until this has succeeded, each other method does it
// first. [store.ErrUnavailable] is temporary; any other error is caused by the configuration or the server, and its text
// contains a remedy.
func (s *Store) Open(ctx context.Context) error {
	err := s.database.open(ctx)
	if err == nil || isConfigurationError(err) {
		return rootCause(err)
	}
	return s.database.storeError(ctx, err)
}

// Close closes all connections, including those of Subscribe. Later calls return [ErrClosed].
func (s *Store) Close() error {
	s.database.close()
	s.sweeper.running.Wait()
	s.database.pool.Close()
	return nil
}

// Do implements [store.Store].
func (s *Store) Do(ctx context.Context, calls ...*store.Call) error {
	if len(calls) == 0 {
		return nil
	}
	step, err := newStep(calls, &s.database.config)
	if err != nil {
		return err
	}
	return s.database.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return s.execute(ctx, conn, step)
	})
}

// Entries written by [Store.Probe].
const (
	probeKind = "trial" // kind of an announced entry that no follower uses
	probeSize = 8 << 10
)

// Probe implements [store.Probe]. It adds and deletes an announced entry and an unannounced one.
func (s *Store) Probe(ctx context.Context) error {
	id := strconv.FormatUint(rand.Uint64(), 36)
	for _, kind := range []string{probeKind, "check"} {
		key := kind + ":" + id
		if err := s.Add(ctx, key, make([]byte, probeSize), time.Minute); err != nil {
			return err
		}
		if err := s.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// VolatilityReason returns why the server may lose data in a crash; "" if it cannot lose data or cannot be queried.
func (s *Store) VolatilityReason(ctx context.Context) (why string) {
	_ = s.database.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error { // ignore errors: other checks report them
		return conn.QueryRow(ctx, `SELECT CASE WHEN current_setting('fsync') = 'off' THEN 'PostgreSQL has fsync off: a crash of the host may lose all data'
			WHEN relpersistence <> 'p' THEN 'the table is UNLOGGED: a crash of PostgreSQL deletes its content' ELSE '' END
			FROM pg_class WHERE oid = $1::regclass`, s.database.sql.table).Scan(&why)
	})
	return why
}

// Now implements [store.SharedStore].
func (s *Store) Now() time.Time { return s.database.clock.now() }

// Size returns the number of entries at the last count, and the limit.
func (s *Store) Size() (entries, limit int) {
	return int(s.capacity.estimatedRows()), int(s.capacity.limit)
}

// PoolStats returns the number of open connections and the number of connections in use.
func (s *Store) PoolStats() (connections, inUse int) {
	stat := s.database.pool.Stat()
	return int(stat.TotalConns()), int(stat.AcquiredConns())
}

var (
	_ store.SharedStore = (*Store)(nil)
	_ store.Exporter    = (*Store)(nil)
)

// A step is a list of calls prepared for the procedure.
type step struct {
	calls         []*store.Call // all calls, in the caller's order
	changes       []*store.Call // calls that change entries, sorted by key to avoid deadlocks
	gets          []*store.Call
	args          arguments
	boundedRows   int64 // maximum number of rows added for bounded kinds
	unboundedRows int64 // maximum number of rows added for unbounded kinds
}

// arguments are the arguments of the procedure. Each slice has an element for each change.
type arguments struct {
	ops       []int16
	keys      []string
	oldValues [][]byte
	values    [][]byte
	limits    []int64
	lifetimes []int64 // lifetimes in milliseconds
	announced []bool
	getKeys   []string
	stepID    string // random ID that all attempts share
}

// newStep prepares a step. It returns an error for keys that a text column cannot store.
func newStep(calls []*store.Call, config *Config) (*step, error) {
	p := &step{calls: calls, args: arguments{getKeys: []string{}, stepID: internalPrefix + strconv.FormatUint(rand.Uint64(), 36)}}
	for _, c := range calls {
		c.Err = checkKey(c.Key)
		switch {
		case c.Err != nil:
			return nil, c.Err
		case c.Op == store.Get:
			p.gets = append(p.gets, c)
			p.args.getKeys = append(p.args.getKeys, c.Key)
			continue
		case c.StoresValue() && slices.Contains(config.UnboundedKinds, store.KindOf(c.Key)):
			p.unboundedRows++
		case c.StoresValue():
			p.boundedRows++
		}
		p.changes = append(p.changes, c)
	}
	slices.SortFunc(p.changes, func(a, b *store.Call) int { return cmp.Compare(a.Key, b.Key) })
	for _, c := range p.changes {
		p.args.add(c, config.isAnnounced(c.Key))
	}
	return p, nil
}

// internalPrefix begins the keys of rows that are not entries.
const internalPrefix = "#"

func checkKey(key string) error {
	if key == "" || strings.HasPrefix(key, internalPrefix) || strings.ContainsRune(key, 0) || strings.ToValidUTF8(key, "") != key {
		return fmt.Errorf("invalid key %q for PostgreSQL", key)
	}
	return nil
}

func (a *arguments) add(c *store.Call, announced bool) {
	a.ops = append(a.ops, int16(c.Op))
	a.keys = append(a.keys, c.Key)
	a.oldValues = append(a.oldValues, nonNil(c.Old))
	a.values = append(a.values, nonNil(c.Value))
	a.limits = append(a.limits, int64(c.Max))
	a.lifetimes = append(a.lifetimes, int64((c.TTL+time.Millisecond-1)/time.Millisecond))
	a.announced = append(a.announced, announced)
}

// nonNil replaces a nil slice, which would become NULL, by an empty one.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// execute executes a step in one round trip.
func (s *Store) execute(ctx context.Context, conn *pgxpool.Conn, p *step) error {
	sql := &s.database.sql
	if len(p.changes) == 0 {
		var got [][]byte
		err := conn.QueryRow(ctx, sql.get, p.args.getKeys).Scan(&got)
		if err == nil {
			p.setResults(got)
		}
		return err
	}
	available, err := s.capacity.reserve(ctx, conn, p.boundedRows)
	if err != nil {
		return err
	}
	channel, a := "", &p.args
	if slices.Contains(a.announced, true) {
		channel = sql.channel
	}
	var failedCall int
	var currentValues, got [][]byte
	err = conn.QueryRow(
		ctx, sql.execute, a.ops, a.keys, a.oldValues, a.values, a.limits, a.lifetimes, a.announced, a.getKeys,
		a.stepID, available+p.unboundedRows, s.database.config.SynchronousCommit, channel,
	).Scan(&failedCall, &currentValues, &got)
	switch {
	case err != nil:
		return err
	case failedCall != 0:
		return p.callError(failedCall, currentValues)
	}
	for i, c := range p.changes {
		if c.Op == store.Take {
			c.Value = currentValues[i]
		}
	}
	p.setResults(got)
	return nil
}

func (p *step) setResults(values [][]byte) {
	for i, c := range p.gets {
		c.Value = values[i]
	}
}

// callError returns the error of the failed call. This is the first call that fails with the current values or, if the values
// have changed since, the call at which the procedure stopped.
func (p *step) callError(failedCall int, currentValues [][]byte) error {
	if failedCall < 0 {
		c := p.changes[-failedCall-1]
		c.Err = store.ErrFull
		return c.Err
	}
	for _, c := range p.calls {
		i := slices.Index(p.changes, c)
		if i < 0 {
			continue
		}
		if err := c.Check(currentValues[i], currentValues[i] != nil); err != nil {
			return err
		}
	}
	c := p.changes[failedCall-1]
	c.Err = map[store.Op]error{
		store.Add: store.ErrExists, store.Swap: store.ErrChanged, store.Take: store.ErrNotFound, store.Append: store.ErrTooLong,
	}[c.Op]
	return c.Err
}

// pageRows is the maximum number of rows of a page. Reading a page takes a fraction of a second.
const pageRows = 2000

// pageQuery reads a page of rows with keys that start with $3, starting at the key $1, or after it if $2 is true. It includes
// the values if $4 is true. U+10FFFF sorts after all keys.
const pageQuery = `SELECT key, CASE WHEN $4 THEN value END, extract(epoch FROM expires - clock_timestamp())::float8
	FROM {table} WHERE key >= $1 AND (key > $1 OR NOT $2) AND key < $3 || U&'\+10FFFF'
	AND NOT gone AND expires > clock_timestamp() ORDER BY key LIMIT $5`

// An entry is a row with a value.
type entry struct {
	key   string
	value []byte
	ttl   time.Duration
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = s.database.eachEntry(ctx, prefix, false, func(e entry) error {
		keys = append(keys, e.key)
		return nil
	})
	return keys, err
}

// Entries implements [store.Exporter].
func (s *Store) Entries(ctx context.Context, report func(key string, value []byte, ttl time.Duration) error) error {
	return s.database.eachEntry(ctx, "", true, func(e entry) error { return report(e.key, e.value, e.ttl) })
}

// eachEntry reports the entries with keys that begin with prefix, sorted by key. Values are omitted unless values is true.
func (d *database) eachEntry(ctx context.Context, prefix string, values bool, report func(entry) error) error {
	for from, after := prefix, false; ; after = true {
		if err := ctx.Err(); err != nil {
			return err
		}
		var page []entry
		err := d.withConn(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			rows, err := conn.Query(ctx, d.sql.page, from, after, prefix, values, pageRows)
			if err != nil {
				return err
			}
			page, err = pgx.CollectRows(rows, scanEntry)
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := report(e); err != nil {
				return err
			}
		}
		if len(page) < pageRows {
			return nil
		}
		from = page[len(page)-1].key
	}
}

func scanEntry(row pgx.CollectableRow) (e entry, err error) {
	var ttl float64
	err = row.Scan(&e.key, &e.value, &ttl)
	e.ttl = secondsToDuration(ttl)
	return e, err
}

func secondsToDuration(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

//go:embed schema.sql
var schema string

type statements struct {
	schema, execute, get, sweep, count string
	page, changes                      string
	table, channel                     string
}

func statementsFor(table string) statements {
	unqualified := table[strings.LastIndex(table, ".")+1:]
	expand := strings.NewReplacer(
		"{table}", table, "{do}", table+"_do_1", "{get}", table+"_get_1", "{sweep}", table+"_sweep_1",
		"{count}", table+"_count_1", "{expires}", unqualified+"_expires", "{xid}", unqualified+"_xid",
	).Replace
	return statements{
		table: table, channel: unqualified, schema: expand(schema),
		execute: expand("CALL {do}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 0, NULL, NULL)"),
		get:     expand("SELECT {get}($1)"),
		sweep:   expand("SELECT {sweep}($1)"),
		count:   expand("SELECT entries, exact FROM {count}()"),
		page:    expand(pageQuery), changes: expand(changesQuery),
	}
}

package postgresstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pageRows is the most rows of a page, so that it takes a fraction of a second.
const pageRows = 2000

// pageQuery reads a page: keys from $1, or after it if $2, with the prefix $3; values if $4.
// U+10FFFF comes after all that keys hold.
const pageQuery = `SELECT key, CASE WHEN $4 THEN value END, extract(epoch FROM expires - clock_timestamp())::float8
	FROM {table} WHERE key >= $1 AND (key > $1 OR NOT $2) AND key < $3 || U&'\+10FFFF'
	AND NOT gone AND expires > clock_timestamp() ORDER BY key LIMIT $5`

// An entry is a row that holds something.
type entry struct {
	key   string
	value []byte
	ttl   time.Duration
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix string) (keys []string, err error) {
	err = s.database.pages(ctx, prefix, false, func(e entry) error {
		keys = append(keys, e.key)
		return nil
	})
	return keys, err
}

// Entries implements [store.Exporter].
func (s *Store) Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error {
	return s.database.pages(ctx, "", true, func(e entry) error { return tell(e.key, e.value, e.ttl) })
}

// pages reports the entries with a prefix, by key, with their values or without.
func (d *database) pages(ctx context.Context, prefix string, values bool, tell func(entry) error) error {
	for from, after := prefix, false; ; after = true {
		if err := ctx.Err(); err != nil {
			return err
		}
		var page []entry
		err := d.within(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
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
			if err := tell(e); err != nil {
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
	var left float64
	err = row.Scan(&e.key, &e.value, &left)
	e.ttl = seconds(left)
	return e, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

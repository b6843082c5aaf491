package postgresstore

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
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

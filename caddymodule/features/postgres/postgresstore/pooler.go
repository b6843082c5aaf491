package postgresstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

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

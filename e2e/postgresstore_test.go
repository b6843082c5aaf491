package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres/postgresstore"
)

// postgresTables counts the created tables, so that each test uses a separate table.
var postgresTables atomic.Int64

func postgresTable() string { return fmt.Sprint("fhir_store_", postgresTables.Add(1)) }

// openPostgres opens a store and closes it at the end of the test.
func openPostgres(t testing.TB, config postgresstore.Config) *postgresstore.Store {
	t.Helper()
	s, err := postgresstore.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPostgresStore runs the test suites for all stores, including those for capacity.
func TestPostgresStore(t *testing.T) {
	server := startPostgres(t, "fsync=off", "max_connections=400")
	runPostgresSuites(t, server.dsn(""), "")
}

// runPostgresSuites runs the test suites for stores and for shared stores. If listen is not empty, the store listens for
// changes on a connection to that address.
func runPostgresSuites(t *testing.T, dsn, listen string) {
	t.Helper()
	storetest.Suite{
		Lifetime: 2 * time.Second,
		New: func(t *testing.T, maxEntries int) store.Store {
			return openPostgres(t, postgresstore.Config{DSN: dsn, Table: postgresTable(), MaxEntries: maxEntries, Timeout: 10 * time.Second, UnboundedKinds: []string{storetest.ReservedKind}})
		},
	}.Run(t)
	storetest.SharedSuite{
		Lifetime: 2 * time.Second,
		New: func(t *testing.T, kinds ...string) func() store.SharedStore {
			table := postgresTable()
			return func() store.SharedStore {
				return openPostgres(t, postgresstore.Config{DSN: dsn, ListenAddress: listen, Table: table, SubscribedKinds: kinds, Timeout: 10 * time.Second})
			}
		},
	}.Run(t)
}

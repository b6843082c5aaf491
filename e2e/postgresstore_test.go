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

// postgresTables counts the tables, so that each test has its own.
var postgresTables atomic.Int64

func postgresTable() string { return fmt.Sprint("fhir_store_", postgresTables.Add(1)) }

// openPostgres returns a store, which is closed at the end of the test.
func openPostgres(t testing.TB, config postgresstore.Config) *postgresstore.Store {
	t.Helper()
	s, err := postgresstore.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestPostgresStore runs the tests of all stores, including capacity.
func TestPostgresStore(t *testing.T) {
	server := startPostgres(t, "fsync=off", "max_connections=400")
	runPostgresSuites(t, server.dsn(""), "")
}

// runPostgresSuites runs the tests of stores and of shared stores. If listen is not "", the store listens for
// changes at that address.
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

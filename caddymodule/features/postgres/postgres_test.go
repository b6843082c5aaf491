package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// The options make a connection string that says the same, whatever is in them: who writes it shares the connections.
func TestPostgresConnectionString(t *testing.T) {
	t.Setenv("PGPASSWORD_HERE", `it's \ "a" secret`)
	dsn := `host='db1,db2' user='o\'hara' password='it\'s \\ "a" secret' dbname='my data' port=5433`
	parsed, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if parsed.User != "o'hara" || parsed.Password != `it's \ "a" secret` || parsed.Database != "my data" || parsed.Host != "db1" || parsed.Port != 5433 {
		t.Errorf("it says %+v", parsed)
	}
	options := &postgres.Store{
		Hosts: []string{"db1", "db2"}, Port: 5433, User: "o'hara", Password: "{env.PGPASSWORD_HERE}", Database: "my data",
	}
	written := &postgres.Store{DSN: dsn}
	if err := errors.Join(options.Provision(caddy.Context{}), written.Provision(caddy.Context{})); err != nil {
		t.Fatal(err)
	}
	if options.Shared != written.Shared {
		t.Error("another connection string")
	}
	if err := errors.Join(options.Cleanup(), written.Cleanup()); err != nil {
		t.Error(err)
	}
}

// A port among the hosts is no host that cannot be found.
func TestPostgresHostTakesNoPort(t *testing.T) {
	t.Parallel()
	for host, good := range map[string]bool{"db:5432": false, "[::1]:5432": false, "db": true, "::1": true, "/run/pg:1": true} {
		store := &postgres.Store{Hosts: []string{"other", host}}
		if err := store.Provision(caddy.Context{}); (err == nil) != good || !good && !strings.Contains(err.Error(), "host takes no port") {
			t.Errorf("%s: %v", host, err)
		}
		if err := store.Cleanup(); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A secret that is not there is an error that names the option and not the others.
func TestPostgresSecretMissing(t *testing.T) {
	t.Setenv("EMPTY", "")
	for option, store := range map[string]*postgres.Store{
		"dsn":      {DSN: "{env.EMPTY}"},
		"password": {Hosts: []string{"db"}, Password: "{env.EMPTY}"},
		"tls":      {Hosts: []string{"db"}, TLS: &stores.TLS{CA: "/nowhere/ca.pem"}},
	} {
		if err := store.Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", option, err)
		}
		if err := store.Cleanup(); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// A URL in an option that is none for it is refused, and not shown: it may have a password.
func TestPostgresURLIsNotTold(t *testing.T) {
	t.Setenv("PGURL", "postgres://fhir:hunter2@db/fhir")
	t.Setenv("DSN", "host=db port=abc password = 'hunter2 s3c'")
	for option, store := range map[string]*postgres.Store{
		"host":           {Hosts: []string{"{env.PGURL}"}},
		"second host":    {Hosts: []string{"db", "{env.PGURL}"}},
		"user":           {Hosts: []string{"db"}, User: "{env.PGURL}"},
		"database":       {Hosts: []string{"db"}, Database: "{env.PGURL}"},
		"listen_address": {Hosts: []string{"db"}, ListenAddress: "postgres://fhir:hunter2@db/fhir"},
		"dsn":            {DSN: "{env.DSN}"},
	} {
		err := store.Provision(caddy.Context{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", option, err)
		}
		if err := store.Cleanup(); err != nil {
			t.Errorf("%s: %v", option, err)
		}
	}
}

// Two configurations with the same settings share the connections, and one with others has
// its own.
func TestPostgresStoreIsPooled(t *testing.T) {
	t.Parallel()
	same, again, other := &postgres.Store{DSN: "host=/nowhere"}, &postgres.Store{DSN: "host=/nowhere"}, &postgres.Store{DSN: "host=/nowhere", PoolSize: 3}
	for _, p := range []*postgres.Store{same, again, other} {
		if err := p.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
	}
	if same.Shared != again.Shared || same.Shared == other.Shared {
		t.Error("the same settings have two stores, or others the same one")
	}
	for _, p := range []*postgres.Store{same, again, other} {
		if err := p.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	before := same.Shared
	if err := errors.Join(same.Provision(caddy.Context{}), same.Cleanup()); err != nil || same.Shared == before {
		t.Error("it is still open", err)
	}
}

package postgres_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/postgres"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
)

// Placeholder values are escaped in each form of a connection string, so that it is equivalent to one with literal values.
func TestPostgresPlaceholders(t *testing.T) {
	t.Setenv("PGPASSWORD_HERE", `it's \ "a" s%c/ret@#?`)
	t.Setenv("PGHOST_HERE", "db1:5433")
	for name, tt := range map[string]struct{ dsn, written string }{
		"keyword=value":  {`host=db1 port=5433 user=fhir password='{env.PGPASSWORD_HERE}'`, `host=db1 port=5433 user=fhir password='it\'s\ \\\ "a"\ s%c/ret@#?'`},
		"without quotes": {`host=db1 port=5433 password={env.PGPASSWORD_HERE} user=fhir`, `host=db1 port=5433 password=it\'s\ \\\ "a"\ s%c/ret@#? user=fhir`},
		"URL":            {`postgres://fhir:{env.PGPASSWORD_HERE}@{env.PGHOST_HERE}/data`, `postgres://fhir:it%27s%20%5C%20%22a%22%20s%25c%2Fret%40%23%3F@db1:5433/data`},
	} {
		parsed, err := pgconn.ParseConfig(tt.written)
		if err != nil || parsed.Password != os.Getenv("PGPASSWORD_HERE") || parsed.Host != "db1" || parsed.Port != 5433 {
			t.Fatalf("%s: parsed %+v, %v", name, parsed, err)
		}
		withPlaceholders, written := &postgres.Store{DSN: tt.dsn}, &postgres.Store{DSN: tt.written}
		if err := errors.Join(withPlaceholders.Provision(caddy.Context{}), written.Provision(caddy.Context{})); err != nil {
			t.Fatal(err)
		}
		if withPlaceholders.Shared != written.Shared {
			t.Errorf("%s: another connection string", name)
		}
		if err := errors.Join(withPlaceholders.Cleanup(), written.Cleanup()); err != nil {
			t.Error(err)
		}
	}
}

// The error for a missing secret contains the name of its option and of no other option.
func TestPostgresSecretMissing(t *testing.T) {
	t.Setenv("EMPTY", "")
	for in, store := range map[string]*postgres.Store{
		"dsn":       {DSN: "{env.EMPTY}"},
		"env.EMPTY": {DSN: "postgres://fhir:{env.EMPTY}@db"},
		"tls":       {DSN: "host=db", TLS: option.TLS{CA: "/nowhere/ca.pem"}},
	} {
		if err := store.Provision(caddy.Context{}); err == nil || !strings.Contains(err.Error(), in) {
			t.Errorf("%s: %v", in, err)
		}
		if err := store.Cleanup(); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// A URL in place of a name is rejected. Because the URL may contain a password, the error does not contain the URL.
func TestPostgresURLIsNotRevealed(t *testing.T) {
	t.Setenv("PGURL", "postgres://fhir:hunter2@db/fhir")
	t.Setenv("DSN", "host=db port=abc password = 'hunter2 s3c'")
	for in, store := range map[string]*postgres.Store{
		"host":           {DSN: "host={env.PGURL}"},
		"user":           {DSN: "host=db user={env.PGURL}"},
		"listen_address": {DSN: "host=db", ListenAddress: "postgres://fhir:hunter2@db/fhir"},
		"dsn":            {DSN: "{env.DSN}"},
	} {
		err := store.Provision(caddy.Context{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", in, err)
		}
		if err := store.Cleanup(); err != nil {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Two configurations share connections only if their settings are equal.
func TestPostgresStoreIsPooled(t *testing.T) {
	t.Parallel()
	same, again, other := &postgres.Store{DSN: "host=/nowhere"}, &postgres.Store{DSN: "host=/nowhere"}, &postgres.Store{DSN: "host=/nowhere pool_max_conns=3"}
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

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

func TestAdapt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	for _, file := range files {
		gatewaytest.CheckGolden(t, file, *update)
	}
}

// The error for an invalid option contains its line number.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	gatewaytest.CaddyfileErrors{
		{"PostgreSQL nowhere", gatewaytest.AppCaddyfile("store postgres"), 4, "the option dsn is required"},
		{"PostgreSQL with an unknown word", gatewaytest.AppCaddyfile("store postgres {\n\t\t\tusername fhir\n\t\t}"), 5, "username"},
		{"invalid table name", gatewaytest.AppCaddyfile("store postgres {\n\t\t\ttable a-b\n\t\t}"), 5, "invalid table"},
		{"commit at times", gatewaytest.AppCaddyfile("store postgres {\n\t\t\tsynchronous_commit sometimes\n\t\t}"), 5, "remote_apply"},
		{"dsn with a placeholder without its end", gatewaytest.AppCaddyfile("store postgres {\n\t\t\tdsn postgres://x:{env.PGPASSWORD@db\n\t\t}"), 5, "no closing brace"},
		{"store's certificate without a key", gatewaytest.AppCaddyfile("store postgres {\n\t\t\tdsn host=db\n\t\t\ttls_client x.pem\n\t\t}"), 6, "x.pem"},
	}.Check(t)
}

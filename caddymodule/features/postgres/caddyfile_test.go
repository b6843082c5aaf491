package postgres_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
)

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

// A wrong option is an error that names the line.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	gatewaytest.CaddyfileErrors{
		{"PostgreSQL nowhere", gatewaytest.AppBlock("store postgres"), 4, "needs a dsn"},
		{"PostgreSQL with an unknown word", gatewaytest.AppBlock("store postgres {\n\t\t\tusername fhir\n\t\t}"), 5, "username"},
		{"table that is none", gatewaytest.AppBlock("store postgres {\n\t\t\ttable a-b\n\t\t}"), 5, "invalid table"},
		{"commit at times", gatewaytest.AppBlock("store postgres {\n\t\t\tsynchronous_commit sometimes\n\t\t}"), 5, "remote_apply"},
		{"dsn with a placeholder without its end", gatewaytest.AppBlock("store postgres {\n\t\t\tdsn postgres://x:{env.PGPASSWORD@db\n\t\t}"), 5, "no closing brace"},
		{"store's certificate without a key", gatewaytest.AppBlock("store postgres {\n\t\t\tdsn host=db\n\t\t\ttls_client x.pem\n\t\t}"), 6, "x.pem"},
	}.Check(t)
}

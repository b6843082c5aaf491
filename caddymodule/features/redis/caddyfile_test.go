package redis_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
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
		{"redis with an unknown word", gatewaytest.AppBlock("store redis {\n\t\t\tulr redis://x\n\t\t}"), 5, "did you mean url?"},
		{"redis at an address that is no URL", gatewaytest.AppBlock("store redis {\n\t\t\turl redis.example:6379\n\t\t}"), 5, "url is not redis://"},
		{"redis with a placeholder without its end", gatewaytest.AppBlock("store redis {\n\t\t\turl redis://x:{env.REDIS@h\n\t\t}"), 5, "{env.REDIS@h has no closing brace"},
		{"redis with half a certificate", gatewaytest.AppBlock("store redis {\n\t\t\ttls_client x.pem\n\t\t}"), 5, "x.pem"},
	}.Check(t)
}

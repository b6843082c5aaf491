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
	for _, tt := range []struct {
		name, caddyfile string
		line            int
		word            string // in the error
	}{
		{"redis with an unknown word", gatewaytest.AppBlock("store redis {\n\t\t\tadress x:1\n\t\t}"), 5, "did you mean address?"},
		{"redis at a host without a port", gatewaytest.AppBlock("store redis {\n\t\t\taddress redis.example\n\t\t}"), 5, `"redis.example" is not host:port`},
		{"redis in two ways", gatewaytest.AppBlock("store redis {\n\t\t\taddress x:1\n\t\t\tcluster y:1\n\t\t}"), 7, "exclude each other"},
		{"redis by a sentinel without nodes", gatewaytest.AppBlock("store redis {\n\t\t\tsentinel {\n\t\t\t\tmaster m\n\t\t\t}\n\t\t}"), 8, "master and nodes"},
		{"redis by a sentinel with a word", gatewaytest.AppBlock("store redis {\n\t\t\tsentinel m {\n\t\t\t}\n\t\t}"), 5, "m"},
		{"redis cluster without a port", gatewaytest.AppBlock("store redis {\n\t\t\tcluster a:1 b\n\t\t}"), 5, `"b" is not host:port`},
		{"redis cluster with a database", gatewaytest.AppBlock("store redis {\n\t\t\tcluster a:1\n\t\t\tdatabase 2\n\t\t}"), 7, "no database but 0"},
		{"redis with a placeholder without its end", gatewaytest.AppBlock("store redis {\n\t\t\tpassword {env.REDIS\n\t\t}"), 5, "{env.REDIS has no closing brace"},
		{"redis with half a certificate", gatewaytest.AppBlock("store redis {\n\t\t\ttls {\n\t\t\t\tkey x.pem\n\t\t\t}\n\t\t}"), 7, "certificate and its key"},
	} {
		t.Run(tt.name, func(t *testing.T) { gatewaytest.CheckCaddyfileError(t, tt.caddyfile, tt.line, tt.word) })
	}
}

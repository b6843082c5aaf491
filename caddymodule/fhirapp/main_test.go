package fhirapp

import (
	"net/http"
	"os"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard"
)

// Tests run in parallel unless they share what the process has once:
//
//   - environment variables
//   - the metrics, which TestMetrics and its like compare before and after
//   - the memory store, in which those of admin*_test.go, commands_test.go and
//     store_test.go end the sessions and grants of alice or set the bound, and in
//     which TestLogsTellNoSecret has her mistype her password
//   - the expansion caches, which the admin API empties and adds up, and in which every
//     write to a ValueSet or CodeSystem ends answers
func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// gateway is a Gateway with what only this package's tests need of it.
type gateway struct {
	*gatewaytest.Gateway
	t testing.TB
}

// exampleGateway is Caddyfile.example, with pieces of its text replaced, in front of a
// backend, which may be nil.
func exampleGateway(t testing.TB, backend http.Handler, oldnew ...string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.Example(t, backend, oldnew...), t}
}

func newGateway(t testing.TB, caddyfile string) *gateway {
	t.Helper()
	return newGatewayAt(t, caddyfile, gatewaytest.Folder(t))
}

// newGatewayAt keeps its keys and certificates in a folder.
func newGatewayAt(t testing.TB, caddyfile, folder string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.NewAt(t, caddyfile, folder), t}
}

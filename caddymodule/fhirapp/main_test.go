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

// Tests run in parallel unless they share process-wide state:
//
//   - environment variables
//   - the metrics, which TestMetrics and similar tests compare before and after
//   - the memory store, in which tests of admin*_test.go, commands_test.go and store_test.go revoke the sessions and grants of
//     alice or set the capacity, and in which TestLogsContainNoSecret enters wrong passwords for alice
//   - the expansion caches, which the admin API clears and counts, and in which every write to a ValueSet or CodeSystem
//     invalidates responses
func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// gateway is a [gatewaytest.Gateway] with additional methods for the tests of this package.
type gateway struct {
	*gatewaytest.Gateway
	t testing.TB
}

// exampleGateway starts Caddyfile.example, with the replacements oldnew, in front of a backend, which may be nil.
func exampleGateway(t testing.TB, backend http.Handler, oldnew ...string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.Example(t, backend, oldnew...), t}
}

func newGateway(t testing.TB, caddyfile string) *gateway {
	t.Helper()
	return newGatewayAt(t, caddyfile, gatewaytest.StorageFolder(t))
}

// newGatewayAt starts a gateway that stores its keys and certificates in folder.
func newGatewayAt(t testing.TB, caddyfile, folder string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.NewInFolder(t, caddyfile, folder), t}
}

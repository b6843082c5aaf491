package scim_test

import (
	"flag"
	"net/http"
	"os"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/scim"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// Servers call the endpoint, and no scripts.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("idp hospital oidc {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id c\n\t\t\tclient_secret s\n\t\t\tscim 0123456789abcdef0123456789abcdef0123456789\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, "/oauth2/scim/hospital/Users", "", "a-token")
}

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

func TestSCIMWithoutToken(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckCaddyfileError(t, gatewaytest.AppBlock("idp h {\n\t\t\tscim\n\t\t}"), 5, "scim has no value")
}

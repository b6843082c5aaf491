package brands_test

import (
	"flag"
	"net/http"
	"os"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// A wrong Caddyfile names the line and the word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	app := gatewaytest.AppBlock
	gatewaytest.CaddyfileErrors{
		{"without a file", app("user_access_brands"), 4, "user_access_brands has no value"},
		{"in a file that is not there", app("user_access_brands missing.json"), 4, "missing.json"},
		{"no JSON", app("user_access_brands caddy_test.go"), 4, "caddy_test.go"},
		{"no Bundle", app("fhir_base /r4\n\t\tuser_access_brands testdata/incomplete.json"), 5, "Bundle.timestamp: is missing"},
		{"no such brand", app("user_access_brands testdata/network.json {\n\t\t\tprimary https://x.example\n\t\t}"), 4, "https://x.example"},
		{"of another server", app("user_access_brands testdata/network.json"), 4, "https://x.example/fhir/R4"},
	}.Check(t)
}

// Scripts of all origins may read the Bundle, as whole gateways have it.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("user_access_brands testdata/network.json {\n\t\t\tprimary https://hospital.example\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, brandsPath, "*", "a-token")
}

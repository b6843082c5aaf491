package sandbox

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

func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckCaddyfileError(t, gatewaytest.AppBlock("launch_page on"), 4, "on")
}

// No script of another origin reads the pages.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("launch_page"))
	for _, path := range []string{launchPagePath, appPath} {
		gatewaytest.CheckCORS(t, g, http.MethodGet, path, "", "")
	}
}

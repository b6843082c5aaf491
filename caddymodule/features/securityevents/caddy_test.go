package securityevents_test

import (
	"net/http"
	"os"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/features/securityevents"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// Servers call the endpoint, and no scripts.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("idp hospital oidc {\n\t\t\tissuer https://login.hospital.example\n\t\t\tclient_id c\n\t\t\tclient_secret s\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodPost, "/oauth2/events/hospital", "", "a-token")
}

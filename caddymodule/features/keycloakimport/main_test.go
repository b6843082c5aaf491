package keycloakimport

import (
	"os"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

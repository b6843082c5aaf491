package conformance

import (
	"os"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule" // the modules that are tested
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

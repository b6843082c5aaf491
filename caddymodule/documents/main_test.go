package documents

import (
	"os"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

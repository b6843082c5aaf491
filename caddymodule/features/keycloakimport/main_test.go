package keycloakimport

import (
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// requestObjects has the option of a feature that these tests do not have.
type requestObjects struct{}

func init() { caddy.RegisterModule(requestObjects{}) }

func (requestObjects) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.client.test_request_objects", New: func() caddy.Module { return new(requestObjects) }}
}

func (requestObjects) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"request_objects": option.Only("required", new(bool))}, nil
}

func (requestObjects) ConfigureClient(*client.Client) {}

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

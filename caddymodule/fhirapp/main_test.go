package fhirapp

import (
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

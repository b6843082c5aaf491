package fhirapp

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// gateway is a Gateway with what only this package's tests need of it.
type gateway struct {
	*gatewaytest.Gateway
	t testing.TB
}

// exampleGateway is Caddyfile.example, with pieces of its text replaced, in front of a
// backend, which may be nil.
func exampleGateway(t testing.TB, backend http.Handler, oldnew ...string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.Example(t, backend, oldnew...), t}
}

func newGateway(t testing.TB, caddyfile string) *gateway {
	t.Helper()
	return newGatewayAt(t, caddyfile, gatewaytest.Folder(t))
}

// newGatewayAt keeps its keys and certificates in a folder.
func newGatewayAt(t testing.TB, caddyfile, folder string) *gateway {
	t.Helper()
	return &gateway{gatewaytest.NewAt(t, caddyfile, folder), t}
}

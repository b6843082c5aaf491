package fhirapp

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A code and a session outlive a reload.
func TestReloadKeepsCodesAndSessions(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.Folder(t)
	before := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), keys)
	code := before.Code()
	after := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), keys)
	after.Cookies = before.Cookies
	response := after.Post("/oauth2/token", gatewaytest.CodeForm(code))
	if response.StatusCode != http.StatusOK {
		t.Errorf("code after a reload: %d %s", response.StatusCode, gatewaytest.Read(t, response))
	}
	again, err := after.Get("/oauth2/authorize?"+gatewaytest.DemoRequest().Encode(), "").Location()
	if err != nil || again.Query().Get("code") == "" {
		t.Errorf("session after a reload: %v %v", again, err)
	}
}

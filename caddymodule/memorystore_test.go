package caddymodule

import (
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// A code and a session outlive a reload.
func TestReloadKeepsCodesAndSessions(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.Folder(t)
	before := newGatewayAt(t, exampleWith(t, "", ""), keys)
	code := before.code()
	after := newGatewayAt(t, exampleWith(t, "", ""), keys)
	after.Cookies = before.Cookies
	response := after.Post("/oauth2/token", codeForm(code))
	if response.StatusCode != http.StatusOK {
		t.Errorf("code after a reload: %d %s", response.StatusCode, gatewaytest.Read(t, response))
	}
	again, err := after.Get("/oauth2/authorize?"+demoRequest().Encode(), "").Location()
	if err != nil || again.Query().Get("code") == "" {
		t.Errorf("session after a reload: %v %v", again, err)
	}
}

package client_test

import (
	"net/http"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// A client may be bound to assertions for the issuer, which cannot have been meant for an endpoint
// of another server.
func TestAssertionForTheIssuerAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bound  bool
		aud    any
		status int
	}{
		{false, servertest.TokenURL, http.StatusOK}, {false, servertest.Issuer, http.StatusOK},
		{true, servertest.Issuer, http.StatusOK}, {true, []string{servertest.Issuer}, http.StatusOK},
		{true, servertest.TokenURL, http.StatusUnauthorized}, {true, []string{servertest.Issuer, servertest.TokenURL}, http.StatusUnauthorized},
	} {
		b := servertest.NewBrowser(t, servertest.NewBackend(t, func(c *client.Client) { c.IssuerAudience = tt.bound }))
		form := servertest.AssertionForm(servertest.Assertion(t, jose.ES384, map[string]any{"aud": tt.aud}, nil), nil)
		if got := b.Post("/oauth2/token", form).StatusCode; got != tt.status {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

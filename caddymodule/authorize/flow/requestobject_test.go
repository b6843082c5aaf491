package flow_test

import (
	"net/url"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// Request objects are a feature (OpenID Connect Core §6). Without it, a client that may send them gets an error for it, and one that must send
// them gets nothing.
func TestRequestObjectsNotSupported(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		c.Clients = append(c.Clients, client.Client{
			ID: "signing", RedirectURIs: []string{authorizetest.Callback}, JWKS: authorizetest.PublicKeys(jose.RS256),
			RequestObjects: client.RequestObjects{Allowed: true, Required: true, URIs: []string{"https://app.example.org/r"}},
		})
		c.Clients[0].RequestObjects = client.RequestObjects{Allowed: true}
	}))
	for _, id := range []string{"app", "signing"} {
		for name, tt := range map[string]struct {
			change url.Values
			want   string
		}{
			"by value":     {url.Values{"request": {"eyJ"}}, "request_not_supported"},
			"by reference": {url.Values{"request_uri": {"https://app.example.org/r"}}, "request_uri_not_supported"},
			"both":         {url.Values{"request": {"eyJ"}, "request_uri": {"https://app.example.org/r"}}, "request_not_supported"},
		} {
			tt.change.Set("client_id", id)
			authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(tt.change))), tt.want, id+" "+name)
		}
	}
	authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"client_id": {"signing"}}))), "invalid_request", "without an object")
	document := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	if document["request_parameter_supported"] != false || document["request_uri_parameter_supported"] != false {
		t.Errorf("discovery: %v, %v", document["request_parameter_supported"], document["request_uri_parameter_supported"])
	}
}

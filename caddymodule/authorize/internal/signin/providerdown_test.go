package signin_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// A provider that cannot be reached costs nobody the other ways to sign in. Where there
// are none, or the request wants that one, the app is told (interface §7).
func TestProviderDown(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	silent, failing := failingIssuer(t, authorizetest.ResetAtOnce), failingIssuer(t, authorizetest.Status(http.StatusBadGateway))
	tests := []struct {
		name    string
		issuer  string
		idps    []string
		request url.Values
		page    bool
	}{
		{"beside passwords", silent, nil, nil, true},
		{"answers with a failure", failing, nil, nil, true},
		{"shows a certificate that nobody trusts", untrusted.URL, nil, nil, true},
		{"beside another provider", silent, []string{"down", "hospital"}, nil, true},
		{"by the domain of an address", silent, nil, url.Values{"login_hint": {"a@clinic.example"}}, true},
		{"the client allows no other", silent, []string{"down"}, nil, false},
		{"the request wants no other", silent, nil, servertest.ByProvider("down"), false},
		{"the request wants no page", silent, nil, url.Values{"login_hint": {"a@clinic.example"}, "prompt": {"none"}}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := authorizetest.Start(t)
			down := people.IdentityProvider{Key: "down", Name: "The Clinic", Issuer: tt.issuer, ClientID: "c", ClientSecret: "s", Domains: []string{"clinic.example"}}
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				c.IdentityProviders = []people.IdentityProvider{down, servertest.Hospital(p)}
				c.Clients[0].IdentityProviders = tt.idps
			}))
			to := servertest.Location(t, b.Authorize(servertest.Request(tt.request)))
			if to.Path == "/oauth2/login" {
				to.Path = "/oauth2/login/down" // the link on the page
			}
			response := b.Get(to.String())
			page := servertest.Body(t, response)
			if !tt.page {
				if to := servertest.Location(t, response); !strings.HasPrefix(to.String(), servertest.Callback) || to.Query().Get("error") == "" {
					t.Errorf("sent to %s", to)
				}
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(page, "The Clinic cannot be reached at the moment.") {
				t.Fatalf("%d: %s", response.StatusCode, page)
			}
			if tt.idps != nil {
				return
			}
			sealed := servertest.Field(t, page, "request")
			u := servertest.Location(t, b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}}))
			servertest.WantCode(t, u, "by a password")
		})
	}
}

// failingIssuer is an issuer that tells nobody where its endpoints are.
func failingIssuer(t *testing.T, fault authorizetest.Fault) string {
	t.Helper()
	p := authorizetest.Start(t)
	p.Fail(authorizetest.Discovery, fault)
	return p.Issuer
}

package authorize_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for _, path := range []string{"/.well-known/openid-configuration", "/.well-known/oauth-authorization-server"} {
		r := b.Get(path)
		if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: header %v", path, r.Header)
		}
		m := authorizetest.Decode[map[string]any](t, r)
		if m["issuer"] != authorizetest.Issuer {
			t.Errorf("%s: issuer %v", path, m["issuer"])
		}
		for name, value := range m {
			if address, ok := value.(string); ok && !strings.HasPrefix(address, "https://") {
				t.Errorf("%s: %s = %v", path, name, value)
			}
		}
		for name, want := range map[string]string{
			"response_types_supported":              "code token",
			"grant_types_supported":                 "authorization_code implicit client_credentials",
			"code_challenge_methods_supported":      "S256",
			"id_token_signing_alg_values_supported": "RS256",
			"subject_types_supported":               "public",
		} {
			authorizetest.Equal(t, authorizetest.Words(m[name]), want, path, name)
		}
	}
}

// Every endpoint that is announced is there.
func TestDiscoveredEndpoints(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, server)
	m := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	for name, value := range m {
		if address, ok := value.(string); ok && name != "issuer" {
			u, err := url.Parse(address)
			if err != nil || !server.Serves(u.Path) {
				t.Errorf("%s = %s is not served", name, address)
			}
		}
	}
}

func TestDiscoveryNamesWhatClientsMayUse(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients = c.Clients[1:3] }))
	m := authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration"))
	authorizetest.Equal(t, authorizetest.Words(m["response_types_supported"]), "code")
	authorizetest.Equal(t, authorizetest.Words(m["grant_types_supported"]), "authorization_code")
}

func TestSMARTConfiguration(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	m := authorizetest.Decode[map[string]any](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	if m["issuer"] != authorizetest.Issuer || m["authorization_endpoint"] != authorizetest.Issuer+"/oauth2/authorize" || m["jwks_uri"] == nil {
		t.Errorf("%v", m)
	}
	// SMART App Launch 2.2, Conformance: "grant types supported at the token endpoint"
	authorizetest.Equal(t, authorizetest.Words(m["grant_types_supported"]), "authorization_code client_credentials")
	authorizetest.WantText(t, authorizetest.Words(m["capabilities"]), "sso-openid-connect")
}

func TestJWKS(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	keys := authorizetest.Decode[jose.JSONWebKeySet](t, b.Get("/.well-known/jwks.json"))
	var algorithms []string
	for _, k := range keys.Keys {
		if !k.IsPublic() || k.KeyID == "" || k.Use != "sig" {
			t.Errorf("key %q, use %q, public %t", k.KeyID, k.Use, k.IsPublic())
		}
		algorithms = append(algorithms, k.Algorithm)
	}
	slices.Sort(algorithms)
	authorizetest.Equal(t, strings.Join(algorithms, " "), "ES256 RS256")
}

func TestUnknownPath(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	for _, path := range []string{"/", "/oauth2", "/oauth2/authorize/", "//oauth2/authorize", "/fhir/R4/metadata"} {
		if server.Serves(path) {
			t.Errorf("%s is served", path)
		}
		authorizetest.WantStatus(t, authorizetest.NewBrowser(t, server).Get("http://x"+path), http.StatusNotFound, path)
	}
}

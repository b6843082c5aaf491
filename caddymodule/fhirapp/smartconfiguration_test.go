package fhirapp

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

const smartPath = "/fhir/R4/.well-known/smart-configuration"

// issuerSaying is an issuer with that discovery document, in which ISSUER is its URL.
func issuerSaying(t *testing.T, document string) (issuer string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if document == "" || r.URL.Path != "/.well-known/openid-configuration" {
			http.Error(w, "secret of the issuer's", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(strings.ReplaceAll(document, "ISSUER", server.URL)))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

const discoveryDocument = `{
	"issuer": "ISSUER", "jwks_uri": "ISSUER/keys", "authorization_endpoint": "ISSUER/auth", "token_endpoint": "ISSUER/token",
	"introspection_endpoint": "ISSUER/introspect", "revocation_endpoint": "ISSUER/revoke", "userinfo_endpoint": "ISSUER/me",
	"scopes_supported": ["openid", "launch/patient", "patient/*.rs", "offline_access"], "response_types_supported": ["code", "token"],
	"grant_types_supported": ["authorization_code", "implicit", "refresh_token"], "code_challenge_methods_supported": ["plain", "S256"],
	"token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "none"]
}`

func guardOnly(trust ...string) string {
	lines := ""
	for _, issuer := range trust {
		lines += "trust " + issuer + " api://fhir\n"
	}
	return tlsSite("fhir_bearer {\n" + lines + "}\nrespond backend")
}

// Apps find the endpoints of the first trusted issuer, from any origin and without a
// token. The issuer is asked once, on the first request.
func TestGuardOnlySMARTConfiguration(t *testing.T) {
	t.Parallel()
	issuer, asked := issuerSaying(t, discoveryDocument)
	second, secondAsked := issuerSaying(t, discoveryDocument)
	g := newGateway(t, guardOnly(issuer, second))
	if n := asked.Load(); n != 0 {
		t.Fatalf("asked %d times while provisioning", n)
	}
	for range 3 {
		r := g.Get(smartPath, "")
		var document map[string]any
		if err := json.NewDecoder(r.Body).Decode(&document); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%d %v", r.StatusCode, err)
		}
		for name, want := range map[string]any{
			"issuer": issuer, "jwks_uri": issuer + "/keys", "authorization_endpoint": issuer + "/auth", "token_endpoint": issuer + "/token",
			"introspection_endpoint": issuer + "/introspect", "revocation_endpoint": issuer + "/revoke",
		} {
			if document[name] != want {
				t.Errorf("%s is %v, want %v", name, document[name], want)
			}
		}
		if got := r.Header; got.Get("Content-Type") != "application/json" || got.Get("Access-Control-Allow-Origin") != "*" || got.Get("Cache-Control") != "public, max-age=600" {
			t.Errorf("headers %v", got)
		}
	}
	newGateway(t, guardOnly(issuer)).Get(smartPath, "") // as after a reload
	if first, other := asked.Load(), secondAsked.Load(); first != 1 || other != 0 {
		t.Errorf("asked the first %d times, the second %d times", first, other)
	}
}

// Everything else below the base needs a token, and so does this path where no trusted
// issuer can be named.
func TestGuardOnlySMARTConfigurationAlone(t *testing.T) {
	t.Parallel()
	issuer, _ := issuerSaying(t, discoveryDocument)
	g := newGateway(t, guardOnly(issuer))
	introspects := newGateway(t, tlsSite("fhir_bearer {\nintrospect "+issuer+"/introspect {\nclient_id x\nclient_secret x\naudience any\n}\n}\nrespond backend"))
	for _, tt := range []struct {
		name, method, path string
		g                  *gateway
		status             int
	}{
		{"HEAD", http.MethodHead, smartPath, g, 200},
		{"POST", http.MethodPost, smartPath, g, 405},
		{"path below it", http.MethodGet, smartPath + "/x", g, 401},
		{"path in another case", http.MethodGet, strings.ToUpper(smartPath), g, 400},
		{"another document", http.MethodGet, "/fhir/R4/.well-known/openid-configuration", g, 401},
		{"introspection alone", http.MethodGet, smartPath, introspects, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.g.Send(httptest.NewRequest(tt.method, tt.path, nil))
			if r.StatusCode != tt.status || tt.status == 405 && r.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%d %v", r.StatusCode, r.Header)
			}
		})
	}
	r := httptest.NewRequest(http.MethodOptions, smartPath, nil)
	r.Header.Set("Origin", "https://anybody.example")
	r.Header.Set("Access-Control-Request-Method", http.MethodGet)
	r.Header.Set("Access-Control-Request-Headers", "mcp-protocol-version")
	if got := g.Send(r); got.StatusCode != http.StatusNoContent || got.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("preflight: %d %v", got.StatusCode, got.Header)
	}
}

// An issuer that is down, or whose document must not be passed on, is answered 503 as
// an OperationOutcome that repeats nothing of it.
func TestGuardOnlySMARTConfigurationFails(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"down":                       "",
		"no JSON":                    "<html>",
		"another issuer's":           strings.Replace(discoveryDocument, `"ISSUER"`, `"https://evil.example"`, 1),
		"no token endpoint":          strings.Replace(discoveryDocument, "token_endpoint\"", "tokens\"", 1),
		"plain HTTP for revocations": strings.Replace(discoveryDocument, "ISSUER/revoke", "http://evil.example/revoke", 1),
		"plain HTTP for management":  strings.Replace(discoveryDocument, `"userinfo_endpoint": "ISSUER/me"`, `"management_endpoint": "http://evil.example/me"`, 1),
		"plain HTTP for brands":      strings.Replace(discoveryDocument, `"userinfo_endpoint": "ISSUER/me"`, `"user_access_brand_bundle": "http://evil.example/me"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			issuer, _ := issuerSaying(t, document)
			g := newGateway(t, guardOnly(issuer))
			r := g.Get(smartPath, "")
			if got := g.Outcome(r); r.StatusCode != http.StatusServiceUnavailable || got != (gatewaytest.Issue{Severity: "error", Code: "transient", Diagnostics: "The service is not available at present. Try again later."}) {
				t.Errorf("%d %+v", r.StatusCode, got)
			}
			if r.Header.Get("Access-Control-Allow-Origin") != "*" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", r.Header)
			}
		})
	}
}

package gatewaytest

import (
	"crypto/elliptic"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// Issuer is another issuer of access tokens, with discovery, keys and introspection.
type Issuer struct {
	*httptest.Server
	Key         jose.JSONWebKey // signing key
	KeyRequests int             // number of requests for the keys
}

// NewIssuer starts an issuer that runs until the end of the test.
func NewIssuer(t *testing.T) *Issuer {
	t.Helper()
	return ServeIssuer(t, func(handler http.Handler) *httptest.Server {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server
	})
}

// ServeIssuer is like [NewIssuer] but runs the issuer on a server that serve starts.
func ServeIssuer(t *testing.T, serve func(http.Handler) *httptest.Server) *Issuer {
	t.Helper()
	k := &Issuer{Key: jose.JSONWebKey{Key: josetest.NewEC(elliptic.P256()), KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}}
	mux := http.NewServeMux()
	k.Server = serve(mux)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": k.URL, "jwks_uri": k.URL + "/keys", "authorization_endpoint": k.URL + "/auth", "token_endpoint": k.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"ES256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		k.KeyRequests++
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.Key.Public()}})
	})
	mux.HandleFunc("/introspect", func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		active := id == "gateway" && secret == "s3cret" && r.FormValue("token") == "opaque"
		response := map[string]any{"active": active}
		if active {
			response = map[string]any{"active": true, "sub": "u2", "client_id": "c2", "scope": "user/*.rs", "fhirUser": "Practitioner/1", "exp": time.Now().Add(time.Hour).Unix()}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(response)
	})
	return k
}

// Token returns an access token of the user u1 for an audience.
func (k *Issuer) Token(t *testing.T, audience string) string {
	t.Helper()
	return k.Sign(t, map[string]any{
		"iss": k.URL, "sub": "u1", "aud": audience, "azp": "c1", "scope": "user/*.rs", "fhirUser": "Practitioner/1",
		"exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(), "typ": "Bearer",
	})
}

// Sign returns a signed token with the given claims.
func (k *Issuer) Sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	return josetest.SignClaims(t, jose.SigningKey{Algorithm: jose.ES256, Key: k.Key}, josetest.Header{"typ": "JWT"}, claims)
}

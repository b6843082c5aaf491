package relyingparty

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/signaturealg"
)

// Accepted metadata are safe to use: they are those of the requested issuer and contain https endpoints and only asymmetric
// algorithms.
func FuzzMetadata(f *testing.F) {
	const issuer = "https://login.example"
	f.Add([]byte(`{"issuer":"https://login.example","jwks_uri":"https://login.example/keys","token_endpoint":"https://login.example/token"}`))
	f.Add([]byte(`{"issuer":"https://login.example","jwks_uri":"https://login.example/keys","id_token_signing_alg_values_supported":["none","HS256","ES256"]}`))
	f.Add([]byte(`{"issuer":"https://login.example","issuer":"x","jwks_uri":"http://127.0.0.1/"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseMetadata(body, issuer)
		if err != nil {
			return
		}
		if m.Issuer != issuer || !strings.HasPrefix(strings.ToLower(m.JWKSURI), "https://") || len(m.Algorithms) == 0 {
			t.Errorf("%+v", m)
		}
		for _, e := range []string{m.AuthorizationEndpoint, m.TokenEndpoint, m.UserInfoEndpoint, m.EndSessionEndpoint} {
			if e != "" && !strings.HasPrefix(strings.ToLower(e), "https://") {
				t.Errorf("endpoint %q", e)
			}
		}
		for _, alg := range m.Algorithms {
			if alg == "none" || strings.HasPrefix(alg, "HS") {
				t.Errorf("algorithm %s", alg)
			}
		}
	})
}

// Accepted keys are public keys of asymmetric signature algorithms.
func FuzzJWKS(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0","use":"sig"}]}`))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AA"},7,null]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		set, err := parseJWKS(body)
		if err != nil {
			return
		}
		for _, key := range set {
			if !key.IsPublic() || !key.Valid() || len(signaturealg.ForKey(key.Key)) == 0 {
				t.Errorf("%+v", key)
			}
			if key.Algorithm != "" && len(jwks{key}.forAlgorithm(key.Algorithm)) != 1 {
				t.Errorf("%s does not fit itself", key.Algorithm)
			}
			if len(jwks{key}.forAlgorithm(string(jose.HS256))) != 0 {
				t.Error("fit for HS256")
			}
		}
	})
}

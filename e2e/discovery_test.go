package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// discovered contains the common members of the three discovery documents (see [TestDiscovery]).
type discovered struct {
	Issuer                        string
	AuthorizationEndpoint         string   `json:"authorization_endpoint"`
	TokenEndpoint                 string   `json:"token_endpoint"`
	JWKS                          string   `json:"jwks_uri"`
	CodeChallengeMethodsSupported []string `json:"code_challenge_methods_supported"`
	Capabilities                  []string // only in the SMART App Launch document
}

// The three discovery documents agree and can be read without a token: OpenID Connect Discovery, RFC 8414 and SMART App Launch
// 2.2.
func TestDiscovery(t *testing.T) {
	for _, path := range []string{
		"/.well-known/openid-configuration",
		"/.well-known/oauth-authorization-server",
		"/fhir/R4/.well-known/smart-configuration",
	} {
		t.Run(path, func(t *testing.T) {
			answer := send(t, example.client, newRequest(t, http.MethodGet, example.issuer+path, "")).is(t, http.StatusOK)
			if got := answer.header.Get("Content-Type"); !strings.HasPrefix(got, "application/json") {
				t.Errorf("Content-Type %q", got)
			}
			var got discovered
			answer.decode(t, &got)
			if got.Issuer != exampleIssuer || got.AuthorizationEndpoint != exampleIssuer+"/oauth2/authorize" ||
				got.TokenEndpoint != exampleIssuer+"/oauth2/token" || got.JWKS != exampleIssuer+"/.well-known/jwks.json" {
				t.Errorf("got %+v", got)
			}
			if !slices.Equal(got.CodeChallengeMethodsSupported, []string{"S256"}) {
				t.Errorf("code_challenge_methods_supported %q", got.CodeChallengeMethodsSupported)
			}
			if strings.Contains(path, "smart") && len(got.Capabilities) == 0 {
				t.Error("no capabilities")
			}
		})
	}
	t.Run("the keys are public ones", func(t *testing.T) {
		var set struct{ Keys []map[string]any }
		send(t, example.client, newRequest(t, http.MethodGet, exampleIssuer+"/.well-known/jwks.json", "")).is(t, http.StatusOK).decode(t, &set)
		if len(set.Keys) == 0 {
			t.Fatal("no keys")
		}
		for _, key := range set.Keys {
			for _, private := range []string{"d", "p", "q", "dp", "dq", "qi", "k"} {
				if _, there := key[private]; there {
					t.Errorf("key %v has %s", key["kid"], private)
				}
			}
		}
	})
}

package client_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

func TestClientKeysRefused(t *testing.T) {
	t.Parallel()
	private, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: authorizetest.AssertionKeys()[jose.ES256], KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		client client.Client
		want   string
	}{
		{"a secret and keys", client.Client{Secret: "x", JWKS: authorizetest.PublicKeys(jose.ES256)}, "one way"},
		{"a secret's digest and keys", client.Client{SecretSHA256: []byte("x"), JWKS: authorizetest.PublicKeys(jose.ES256)}, "one way"},
		{"keys and an address", client.Client{JWKS: authorizetest.PublicKeys(jose.ES256), JWKSURI: "https://c.example/jwks"}, "one way"},
		{"no keys", client.Client{JWKS: []byte(`{"keys":[]}`)}, "no public key"},
		{"no JWKS", client.Client{JWKS: []byte(`[]`)}, "unusable"},
		{"a private key", client.Client{JWKS: private}, "private"},
		{"a secret key", client.Client{JWKS: []byte(`{"keys":[{"kty":"oct","k":"AAAA"}]}`)}, "private"},
		{"an address over http", client.Client{JWKSURI: "http://c.example/jwks"}, "jwks_uri"},
		{"an unknown algorithm", client.Client{IDTokenAlgorithm: "HS256"}, "HS256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.client.ID = "c"
			if err := tt.client.Complete(token.GrantTypes()); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}

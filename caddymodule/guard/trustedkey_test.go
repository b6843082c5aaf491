package guard

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

func TestTrustedKey(t *testing.T) {
	t.Parallel()
	p521 := josetest.NewEC(elliptic.P521())
	p := providerNamed(t, "Auth0")
	payload := p.payload(t, p.access, nil)
	for _, test := range []struct {
		name string
		key  any // the private key that signs
		alg  jose.SignatureAlgorithm
	}{
		{"RS256", rsaKey(), jose.RS256}, {"RS384", rsaKey(), jose.RS384}, {"RS512", rsaKey(), jose.RS512},
		{"PS256", rsaKey(), jose.PS256}, {"PS384", rsaKey(), jose.PS384}, {"PS512", rsaKey(), jose.PS512},
		{"ES256", signingKey(), jose.ES256}, {"ES384", p384Key(), jose.ES384}, {"ES512", p521, jose.ES512},
		{"EdDSA", josetest.NewEd25519(), jose.EdDSA},
	} {
		t.Run(test.name, func(t *testing.T) {
			token := mint{alg: test.alg, key: test.key, header: map[jose.HeaderKey]any{"typ": "JWT", "kid": "k"}}.sign(t, payload)
			for _, alg := range []string{"", string(test.alg)} {
				v := p.trusted()
				v.Keys = &keySet{keys: map[string]jose.JSONWebKey{"k": {Key: test.key, Algorithm: alg}}} // made public
				if _, err := v.Verify(t.Context(), token); err != nil {
					t.Errorf("key with alg %q: %v", alg, err)
				}
			}
		})
	}
}

func TestTrustedKeyRefused(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		jwk  jose.JSONWebKey
		alg  jose.SignatureAlgorithm
	}{
		{"for another alg", jose.JSONWebKey{Key: &rsaKey().PublicKey, Algorithm: "RS256"}, jose.PS256},
		{"for an HMAC", jose.JSONWebKey{Key: &rsaKey().PublicKey, Algorithm: "HS256"}, jose.RS256},
		{"for encryption", jose.JSONWebKey{Key: &rsaKey().PublicKey, Use: "enc"}, jose.RS256},
		{"of another type", jose.JSONWebKey{Key: &rsaKey().PublicKey}, jose.ES256},
		{"of another type, EdDSA", jose.JSONWebKey{Key: &rsaKey().PublicKey}, jose.EdDSA},
		{"of another type, RSA", jose.JSONWebKey{Key: &signingKey().PublicKey}, jose.RS256},
		{"on another curve", jose.JSONWebKey{Key: &p384Key().PublicKey}, jose.ES256},
		{"on another curve, said to be right", jose.JSONWebKey{Key: &p384Key().PublicKey, Algorithm: "ES256"}, jose.ES256},
		{"too short", jose.JSONWebKey{Key: &short.PublicKey}, jose.RS256},
		{"a secret", jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}, jose.HS256},
		{"a secret for RS256", jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef")}, jose.RS256},
		{"nothing", jose.JSONWebKey{}, jose.RS256},
		{"an empty RSA key", jose.JSONWebKey{Key: &rsa.PublicKey{}}, jose.RS256},
	} {
		t.Run(test.name, func(t *testing.T) {
			if key, err := trustedKey(test.jwk, test.alg); !errors.Is(err, errAlgorithm) || key != nil {
				t.Errorf("got %v, %v", key, err)
			}
		})
	}
}

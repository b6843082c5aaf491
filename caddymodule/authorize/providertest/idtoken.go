package providertest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"sync"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// IDToken is an ID token before it is signed.
type IDToken struct {
	Algorithm jose.SignatureAlgorithm // the alg header. With "none" there is no signature.
	Type      jose.ContentType        // the typ header. Empty: JWT.
	KeyID     string                  // the kid header. Empty: none.
	Key       any                     // Key signs: a private key, or the bytes of a secret
	Claims    map[string]any          // the payload
}

// sign makes the compact form. It panics where that cannot be: the test is
// wrong then.
func (t *IDToken) sign() string {
	payload, err := json.Marshal(t.Claims)
	if err != nil {
		panic(err)
	}
	if t.Algorithm == "none" {
		encode := base64.RawURLEncoding.EncodeToString
		return encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + encode(payload) + "."
	}
	header := josetest.Header{jose.HeaderType: cmp.Or(t.Type, "JWT")}
	if t.KeyID != "" {
		header["kid"] = t.KeyID
	}
	compact, err := josetest.Compact(jose.SigningKey{Algorithm: t.Algorithm, Key: t.Key}, header, payload)
	if err != nil {
		panic(err)
	}
	return compact
}

// signingKey is the key of every provider, and quickKey of those that sign by ES256.
var (
	signingKey = sync.OnceValue(josetest.NewRSA)
	quickKey   = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
)

// key is what signs ID tokens.
func (s *Settings) key() jose.SigningKey {
	if s.KeyAlgorithm == string(jose.ES256) {
		return jose.SigningKey{Algorithm: jose.ES256, Key: quickKey()}
	}
	return jose.SigningKey{Algorithm: jose.RS256, Key: signingKey()}
}

package authorizetest

import (
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"sync"

	"github.com/go-jose/go-jose/v4"
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
	options := (&jose.SignerOptions{}).WithType(cmp.Or(t.Type, "JWT"))
	if t.KeyID != "" {
		options.WithHeader("kid", t.KeyID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: t.Algorithm, Key: t.Key}, options)
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	compact, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return compact
}

// signingKey is the key of every provider.
var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err) // the system has no randomness
	}
	return key
})

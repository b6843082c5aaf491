package providertest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

// What follows are values for [Settings.IDToken]. Each makes an ID token wrong
// in one way, and leaves it right otherwise.

// UnknownKey signs with a key that is not in the key set.
func UnknownKey(t *IDToken) {
	t.KeyID, t.Key = "unknown", foreignKey()
}

// ForeignKey signs with a key that is not in the key set, under the kid of one
// that is.
func ForeignKey(t *IDToken) { t.Key = foreignKey() }

// AlgorithmNone does not sign.
func AlgorithmNone(t *IDToken) { t.Algorithm = "none" }

// HS256WithPublicKey signs with what everybody has: the public key, as the
// secret (RFC 8725 §2.1).
func HS256WithPublicKey(t *IDToken) {
	der, err := x509.MarshalPKIXPublicKey(signingKey().Public())
	if err != nil {
		panic(err) // an RSA key always marshals
	}
	t.Algorithm, t.Key = jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// HS256WithClientSecret signs with [ClientSecret], as OpenID Connect Core §10.1
// would allow, made up to the size that the algorithm needs.
func HS256WithClientSecret(t *IDToken) {
	t.Algorithm, t.Key = jose.HS256, append([]byte(ClientSecret), make([]byte, 32)...)
}

// WrongNonce has the nonce of another sign-in.
func WrongNonce(t *IDToken) { t.Claims["nonce"] = "another" }

// WithoutNonce has no nonce.
func WithoutNonce(t *IDToken) { delete(t.Claims, "nonce") }

// WrongAudience is for another client.
func WrongAudience(t *IDToken) { t.Claims["aud"] = "another" }

// WrongIssuer is of another provider.
func WrongIssuer(t *IDToken) { t.Claims["iss"] = "https://login.attacker.example" }

// Expired has been valid once.
func Expired(t *IDToken) { t.Claims["exp"] = time.Now().Add(-time.Hour).Unix() }

// OtherAuthorizedParty was issued to another client, with us in aud too.
func OtherAuthorizedParty(t *IDToken) {
	t.Claims["aud"] = []any{t.Claims["aud"], "another"}
	t.Claims["azp"] = "another"
}

// EmailVerifiedString has an email_verified of "true", which is no true.
func EmailVerifiedString(t *IDToken) { t.Claims["email_verified"] = "true" }

// foreignKey is a key of nobody.
var foreignKey = sync.OnceValue(josetest.NewRSA)

// SignedJSON answers 200 with claims as a signed JWT, as a userinfo endpoint
// may (OpenID Connect Core §5.3.2); change makes it wrong before it is signed.
func SignedJSON(claims map[string]any, change func(*IDToken)) Fault {
	return func(w http.ResponseWriter, _ *http.Request) {
		token := &IDToken{Algorithm: jose.RS256, KeyID: "key-1", Key: signingKey(), Claims: maps.Clone(claims)}
		change(token)
		w.Header().Set("Content-Type", "application/jwt")
		_, _ = io.WriteString(w, token.sign())
	}
}

package guard

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/josetest"
)

const (
	testIssuer   = "https://fhir.example.org"
	testAudience = "https://fhir.example.org/fhir/R4"
)

// testTime is the time of the tests that have no clock of their own.
var testTime = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// The keys of the tests, made once.
var (
	signingKey = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
	secondKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P256()) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return josetest.NewEC(elliptic.P384()) })
	rsaKey     = sync.OnceValue(josetest.NewRSA)
)

// keySet is a KeySet of the keys by their kid; err, if any, is its answer.
type keySet struct {
	keys map[string]jose.JSONWebKey
	err  error
}

func (k *keySet) Key(_ context.Context, kid string) (jose.JSONWebKey, error) {
	if k.err != nil {
		return jose.JSONWebKey{}, k.err
	}
	key, ok := k.keys[kid]
	if !ok {
		return key, fmt.Errorf("%w: %q", ErrUnknownKey, kid)
	}
	return key, nil
}

// testKeys are the issuer's keys: two that sign access tokens, and others that
// do not.
func testKeys() *keySet {
	jwk := func(public crypto.PublicKey, alg, use string) jose.JSONWebKey {
		return jose.JSONWebKey{Key: public, Algorithm: alg, Use: use}
	}
	return &keySet{keys: map[string]jose.JSONWebKey{
		"":           jwk(&signingKey().PublicKey, "ES256", "sig"), // not for a token without a kid
		"first":      jwk(&signingKey().PublicKey, "ES256", "sig"),
		"second":     jwk(&secondKey().PublicKey, "ES256", ""),
		"private":    jwk(signingKey(), "ES256", "sig"),
		"rsa":        jwk(&rsaKey().PublicKey, "RS256", "sig"),
		"rsa-es256":  jwk(&rsaKey().PublicKey, "ES256", "sig"),
		"p384":       jwk(&p384Key().PublicKey, "ES384", "sig"),
		"p384-es256": jwk(&p384Key().PublicKey, "ES256", "sig"),
		"no-alg":     jwk(&signingKey().PublicKey, "", "sig"),
		"encryption": jwk(&signingKey().PublicKey, "ES256", "enc"),
	}}
}

// testVerifier verifies the tokens of the tests, at testTime.
func testVerifier() *Verifier {
	return &Verifier{
		Issuer:   testIssuer,
		Audience: testAudience,
		Keys:     testKeys(),
		Now:      func() time.Time { return testTime },
	}
}

// mint says how a test's token differs from a valid one.
type mint struct {
	alg    jose.SignatureAlgorithm // default ES256
	key    any                     // default signingKey
	header map[jose.HeaderKey]any  // over typ at+jwt and kid first; nil leaves out
	claims map[string]any          // over those of validClaims; nil leaves out
}

// validClaims are the claims of a token that was issued at now for an hour.
func validClaims(now time.Time) map[string]any {
	return map[string]any{
		"iss": testIssuer, "aud": testAudience, "sub": "alice", "client_id": "demo-app", "jti": "token-1",
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"scope": "openid patient/*.rs", "patient": "123", "fhirUser": "Practitioner/alice",
	}
}

// token mints a token at testTime.
func (m mint) token(t testing.TB) string {
	t.Helper()
	return m.tokenAt(t, testTime)
}

// tokenAt mints a token at a time.
func (m mint) tokenAt(t testing.TB, now time.Time) string {
	t.Helper()
	payload, err := json.Marshal(merge(validClaims(now), m.claims))
	if err != nil {
		t.Fatal(err)
	}
	return m.sign(t, payload)
}

// sign makes a token of a payload as it is.
func (m mint) sign(t testing.TB, payload []byte) string {
	t.Helper()
	if m.alg == "" {
		m.alg = jose.ES256
	}
	if m.key == nil {
		m.key = signingKey()
	}
	header := merge(map[jose.HeaderKey]any{"typ": "at+jwt", "kid": "first"}, m.header)
	return josetest.Sign(t, jose.SigningKey{Algorithm: m.alg, Key: m.key}, header, payload)
}

// merge lays changes over base; a nil removes.
func merge[K comparable](base, changes map[K]any) map[K]any {
	maps.Copy(base, changes)
	maps.DeleteFunc(base, func(_ K, value any) bool { return value == nil })
	return base
}

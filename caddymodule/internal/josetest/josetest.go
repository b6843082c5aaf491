// Package josetest creates keys and signed tokens for tests. Header and payload may be invalid.
package josetest

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// NewRSA returns a new 2048-bit RSA key.
func NewRSA() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) }

// NewEC returns a new key on the given curve.
func NewEC(curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

// NewEd25519 returns a new Ed25519 key, for the algorithm EdDSA.
func NewEd25519() ed25519.PrivateKey {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return must(key, err)
}

func must[K any](key K, err error) K {
	if err != nil {
		panic(err) // no source of randomness is available
	}
	return key
}

// Header is the protected header of a token, except alg.
type Header map[jose.HeaderKey]any

// Sign signs a payload as is and returns the compact serialization (RFC 7515 §7.1).
func Sign(t testing.TB, key jose.SigningKey, header Header, payload []byte) string {
	t.Helper()
	token, err := SignCompact(key, header, payload)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// SignCompact is like [Sign] but can be used outside of tests.
func SignCompact(key jose.SigningKey, header Header, payload []byte) (string, error) {
	signer, err := jose.NewSigner(key, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// SignClaims signs claims as a JWT (RFC 7519).
func SignClaims(t testing.TB, key jose.SigningKey, header Header, claims any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return Sign(t, key, header, payload)
}

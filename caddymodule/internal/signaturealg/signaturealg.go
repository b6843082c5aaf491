// Package signaturealg lists the signature algorithms that are accepted from other issuers, providers and clients,
// and the keys for each algorithm.
package signaturealg

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Asymmetric are the accepted algorithms (RFC 7518 §3.1, RFC 8037 §3.1). They exclude none and HMAC, with which the
// public key or the client secret could be used for signing (RFC 8725 §2.1, §3.1).
var Asymmetric = append(slices.Clip(rsaAlgorithms), jose.ES256, jose.ES384, jose.ES512, jose.EdDSA)

// Algorithms by key type. They are precomputed slices, because [ForKey] is called for each token.
var (
	rsaAlgorithms   = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	curveAlgorithms = map[elliptic.Curve][]jose.SignatureAlgorithm{
		elliptic.P256(): {jose.ES256}, elliptic.P384(): {jose.ES384}, elliptic.P521(): {jose.ES512},
	}
	ed25519Algorithms = []jose.SignatureAlgorithm{jose.EdDSA}
)

// minRSABits is the minimum size of an RSA key in bits (RFC 7518 §3.3). go-jose sets the maximum, 4096.
const minRSABits = 2048

// ForKey returns the algorithms for a public key: those of its type and, for ECDSA, of its curve (RFC 7518 §3.4). The
// result is empty if the key is too short or of another type.
func ForKey(key any) []jose.SignatureAlgorithm {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSABits {
			return rsaAlgorithms
		}
	case *ecdsa.PublicKey:
		return curveAlgorithms[key.Curve]
	case ed25519.PublicKey:
		if len(key) == ed25519.PublicKeySize {
			return ed25519Algorithms
		}
	}
	return nil
}

// Package signaturealg defines the signature algorithms that are accepted from other issuers, providers and clients, and the
// algorithms suitable for a key.
package signaturealg

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Asymmetric lists the accepted algorithms (RFC 7518 §3.1, RFC 8037 §3.1). It excludes none, and HMAC, which would allow
// signing with the public key or the client secret (RFC 8725 §2.1, §3.1).
var Asymmetric = append(slices.Clip(rsaAlgorithms), jose.ES256, jose.ES384, jose.ES512, jose.EdDSA)

// Algorithms by type of key. The slices are created in advance, because [ForKey] is called for each token.
var (
	rsaAlgorithms   = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
	curveAlgorithms = map[elliptic.Curve][]jose.SignatureAlgorithm{
		elliptic.P256(): {jose.ES256}, elliptic.P384(): {jose.ES384}, elliptic.P521(): {jose.ES512},
	}
	ed25519Algorithms = []jose.SignatureAlgorithm{jose.EdDSA}
)

// minRSABits is the minimum size of an RSA key in bits (RFC 7518 §3.3). go-jose enforces the maximum of 4096 bits.
const minRSABits = 2048

// ForKey returns the algorithms suitable for a public key, determined by its type and, for ECDSA, its curve (RFC 7518 §3.4). It
// returns nil if the key is too short or of an unsupported type.
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

package guard

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// trustedAlgorithms are those that other issuers sign with (RFC 7518 §3.1, RFC 8037 §3.1). HMAC is not among them:
// whoever has the public key could sign with it (RFC 8725 §2.1).
var trustedAlgorithms = append([]jose.SignatureAlgorithm{
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}, rsaAlgorithms...)

// rsaAlgorithms are those of an RSA key, and curves those of ECDSA keys with the one curve of each (RFC 7518 §3.4).
var (
	rsaAlgorithms = []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512,
		jose.PS256, jose.PS384, jose.PS512,
	}
	curves = map[jose.SignatureAlgorithm]elliptic.Curve{
		jose.ES256: elliptic.P256(),
		jose.ES384: elliptic.P384(),
		jose.ES512: elliptic.P521(),
	}
)

// minRSABits is the minimum size of an RSA key (RFC 7518 §3.3).
const minRSABits = 2048

// trustedKey is the public part of another issuer's key if it may verify alg: by the key's own alg or, if it has none,
// by its type and curve.
func trustedKey(jwk jose.JSONWebKey, alg jose.SignatureAlgorithm) (publicKey, error) {
	if (jwk.Algorithm != "" && jwk.Algorithm != string(alg)) || (jwk.Use != "" && jwk.Use != "sig") {
		return nil, fmt.Errorf("%w: key is not for it", errAlgorithm)
	}
	public := jwk.Public()
	if !public.Valid() {
		return nil, fmt.Errorf("%w: no public key", errAlgorithm)
	}
	switch key := public.Key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() >= minRSABits && slices.Contains(rsaAlgorithms, alg) {
			return key, nil
		}
	case *ecdsa.PublicKey:
		if key.Curve == curves[alg] {
			return key, nil
		}
	case ed25519.PublicKey:
		if alg == jose.EdDSA {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w: key does not fit it", errAlgorithm)
}

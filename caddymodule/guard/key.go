package guard

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// KeySet holds an issuer's public keys. The kid is from a token that nobody has verified yet, so an implementation
// that fetches keys must limit how often an unknown kid makes it do so.
type KeySet interface {
	// Key returns the key with this kid. Its error wraps [ErrUnknownKey] if there is none; any other error means that
	// the keys are unavailable.
	//
	// For a [Verifier] the key must have an alg. For a [Trusted] it need not, as Microsoft omits it; the key's type
	// then decides.
	//
	// The kid is empty for a token of a [Trusted] issuer without one (RFC 7515 §4.1.4). A set should return a key for
	// it only if the issuer has a single signing key, so that none are tried out, and [ErrUnknownKey] otherwise.
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)
}

// ownKey is the public part of a key for our only algorithm: a key serves the algorithm it was made for, whatever the
// token says (RFC 8725 §3.1).
func ownKey(jwk jose.JSONWebKey, _ jose.SignatureAlgorithm) (publicKey, error) {
	if jwk.Algorithm != string(algorithm) || (jwk.Use != "" && jwk.Use != "sig") {
		return nil, fmt.Errorf("%w: key is not for it", errAlgorithm)
	}
	key, ok := jwk.Key.(*ecdsa.PublicKey)
	if private, isPrivate := jwk.Key.(*ecdsa.PrivateKey); isPrivate {
		key, ok = &private.PublicKey, true
	}
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: key is not on P-256", errAlgorithm)
	}
	return key, nil
}

// checkSignature checks the signature and returns the claims as JSON.
func checkSignature(raw string, alg jose.SignatureAlgorithm, key publicKey) (payload []byte, err error) {
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	payload, err = jws.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return payload, nil
}

// algorithm is the only signature algorithm of our access tokens (RFC 8725 §3.1): none and HS256 are forgeries, and
// RS256 signs ID tokens.
const algorithm = jose.ES256

type publicKey interface {
	Equal(other crypto.PublicKey) bool
}

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

package guard

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"fmt"

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

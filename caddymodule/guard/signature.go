package guard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// KeySet holds an issuer's public keys. The kid comes from a token that
// nobody has verified yet, so an implementation that fetches keys must bound
// how often an unknown kid makes it do so.
type KeySet interface {
	// Key returns the key with this kid. It returns an error that wraps
	// [ErrUnknownKey] where there is none; any other error means that the
	// keys cannot be had at present.
	//
	// For a [Verifier] the key's alg is set. For a [Trusted] it may be
	// missing, as Microsoft leaves it out: then the key's type decides.
	//
	// The kid is empty for a token of a [Trusted] issuer that names none
	// (RFC 7515 §4.1.4 lets it). A set should answer it only where the issuer
	// has one signing key, so that there is nothing to try out, and with
	// [ErrUnknownKey] otherwise. A [Verifier] never asks for it.
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)
}

// ownKey is the public part of a key that signs with our one algorithm and is
// for nothing else: a key serves the algorithm it was made for, whatever the
// token says (RFC 8725 §3.1).
func ownKey(jwk jose.JSONWebKey, _ jose.SignatureAlgorithm) (publicKey, error) {
	if jwk.Algorithm != string(algorithm) || (jwk.Use != "" && jwk.Use != "sig") {
		return nil, fmt.Errorf("%w: key is not for it", ErrAlgorithm)
	}
	key, ok := jwk.Key.(*ecdsa.PublicKey)
	if private, isPrivate := jwk.Key.(*ecdsa.PrivateKey); isPrivate {
		key, ok = &private.PublicKey, true
	}
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: key is not on P-256", ErrAlgorithm)
	}
	return key, nil
}

// checkSignature checks the signature and returns the claims, as JSON.
func checkSignature(raw string, alg jose.SignatureAlgorithm, key publicKey) (payload []byte, err error) {
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{alg})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	payload, err = jws.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return payload, nil
}

package guard

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
)

// KeySet holds an issuer's public keys. The kid comes from a token that
// nobody has verified yet, so an implementation that fetches keys must bound
// how often an unknown kid makes it do so.
type KeySet interface {
	// Key returns the key with this kid, with its alg set. It returns an
	// error that wraps [ErrUnknownKey] where there is none; any other error
	// means that the keys cannot be had at present.
	Key(ctx context.Context, kid string) (jose.JSONWebKey, error)
}

// key returns the issuer's key with this kid, fit for the algorithm.
func (v *Verifier) key(ctx context.Context, kid string) (*ecdsa.PublicKey, error) {
	jwk, err := v.Keys.Key(ctx, kid)
	if errors.Is(err, ErrUnknownKey) {
		return nil, invalidToken(err)
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("%w: keys: %w", ErrUnavailable, err))
	}
	key, err := publicKey(jwk)
	if err != nil {
		return nil, invalidToken(err)
	}
	return key, nil
}

// publicKey is the public part of a key that signs with the one algorithm and
// is for nothing else: a key serves the algorithm it was made for, whatever
// the token says (RFC 8725 §3.1).
func publicKey(jwk jose.JSONWebKey) (*ecdsa.PublicKey, error) {
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
func checkSignature(raw string, key *ecdsa.PublicKey) (payload []byte, err error) {
	jws, err := jose.ParseSignedCompact(raw, []jose.SignatureAlgorithm{algorithm})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	payload, err = jws.Verify(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSignature, err)
	}
	return payload, nil
}

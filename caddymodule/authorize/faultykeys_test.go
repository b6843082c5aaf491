package authorize

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// faultyKeys are keys of which each use fails where fault says so.
type faultyKeys struct {
	keySource
	fault func(call string) error
}

// FailKeysForTest has fault called before each use of the server's keys, for the tests
// in package authorize_test.
func (s *Server) FailKeysForTest(fault func(call string) error) {
	s.keys = faultyKeys{s.keys, fault}
}

func (k faultyKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if err := k.fault("keys.Key"); err != nil {
		return jose.JSONWebKey{}, err
	}
	return k.keySource.Key(ctx, kid)
}

func (k faultyKeys) Has(ctx context.Context, kid string) (bool, error) {
	if err := k.fault("keys.has"); err != nil {
		return false, err
	}
	return k.keySource.Has(ctx, kid)
}

func (k faultyKeys) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	if err := k.fault("keys.signer " + string(alg)); err != nil {
		return nil, err
	}
	return k.keySource.Signer(ctx, alg, typ)
}

func (k faultyKeys) Seal(ctx context.Context, text, binding string) (string, error) {
	if err := k.fault("keys.seal"); err != nil {
		return "", err
	}
	return k.keySource.Seal(ctx, text, binding)
}

func (k faultyKeys) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	if err := k.fault("keys.unseal"); err != nil {
		return "", err
	}
	return k.keySource.Unseal(ctx, sealed, binding, maxAge)
}

func (k faultyKeys) Mac(ctx context.Context, text string) ([]byte, error) {
	if err := k.fault("keys.mac"); err != nil {
		return nil, err
	}
	return k.keySource.Mac(ctx, text)
}

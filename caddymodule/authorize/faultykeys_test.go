package authorize_test

import (
	"context"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// faultyKeys are keys of which a use fails.
type faultyKeys struct {
	keyring.Keys
	*faults
}

func (k faultyKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	if err := k.next("keys.Key"); err != nil {
		return jose.JSONWebKey{}, err
	}
	return k.Keys.Key(ctx, kid)
}

func (k faultyKeys) Has(ctx context.Context, kid string) (bool, error) {
	if err := k.next("keys.has"); err != nil {
		return false, err
	}
	return k.Keys.Has(ctx, kid)
}

func (k faultyKeys) Signer(ctx context.Context, alg jose.SignatureAlgorithm, typ string) (jose.Signer, error) {
	if err := k.next("keys.signer " + string(alg)); err != nil {
		return nil, err
	}
	return k.Keys.Signer(ctx, alg, typ)
}

func (k faultyKeys) Seal(ctx context.Context, text, binding string) (string, error) {
	if err := k.next("keys.seal"); err != nil {
		return "", err
	}
	return k.Keys.Seal(ctx, text, binding)
}

func (k faultyKeys) Unseal(ctx context.Context, sealed, binding string, maxAge time.Duration) (string, error) {
	if err := k.next("keys.unseal"); err != nil {
		return "", err
	}
	return k.Keys.Unseal(ctx, sealed, binding, maxAge)
}

func (k faultyKeys) Mac(ctx context.Context, text string) ([]byte, error) {
	if err := k.next("keys.mac"); err != nil {
		return nil, err
	}
	return k.Keys.MAC(ctx, text)
}

package caddymodule

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// issuerKeys keeps the keys of trusted issuers over reloads, by issuer and by how it
// proves who it is: one that
// is down at such a moment must not end what its tokens give, and need not be asked
// again by each configuration.
var issuerKeys = caddy.NewUsagePool()

// trustedKeys lets guard verify with another issuer's keys, and knows where its endpoints
// are.
type trustedKeys struct {
	set       *upstream.KeySet
	discovery *upstream.Discovery
}

// Key implements guard.KeySet.
func (k trustedKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	key, err := k.set.Key(ctx, kid)
	if errors.Is(err, upstream.ErrUnknownKey) {
		return key, guard.ErrUnknownKey
	}
	return key, err
}

// Destruct implements caddy.Destructor.
func (trustedKeys) Destruct() error { return nil }

// keysOf takes the keys of an issuer from the pool, until Cleanup.
func (h *Bearer) keysOf(ctx caddy.Context, t *TrustedIssuer) (none trustedKeys, err error) {
	authorities, err := t.authorities()
	if err != nil {
		return none, err
	}
	transport, err := t.TLS.transport()
	if err != nil {
		return none, err
	}
	key := fmt.Sprintf("%q %q %q", t.Issuer, t.TLS, authorities)
	keys, _, err := issuerKeys.LoadOrNew(key, func() (caddy.Destructor, error) {
		of := upstream.KeySetConfig{Issuer: t.Issuer, Transport: transport, Logger: ctx.Slogger()}
		set, err := upstream.NewKeySet(of)
		if err != nil {
			return nil, err
		}
		discovery, err := upstream.NewDiscovery(of)
		return trustedKeys{set, discovery}, err
	})
	if err != nil {
		return none, err
	}
	h.pooled = append(h.pooled, key)
	return keys.(trustedKeys), nil
}

// Cleanup lets the issuers' keys go, as many of them as Provision took.
func (h *Bearer) Cleanup() error {
	var errs []error
	for _, key := range h.pooled {
		_, err := issuerKeys.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var (
	_ caddy.Destructor = trustedKeys{}
	_ guard.KeySet     = trustedKeys{}
)

package bearer

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddyserver/caddy/v2"
	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// issuerKeys keeps the keys of trusted issuers over reloads, by issuer and TLS settings, so that tokens stay valid if an
// issuer is down during a reload.
var issuerKeys = caddy.NewUsagePool()

// guardKeys adapts a set of keys to package guard.
type guardKeys struct {
	set     guard.KeySet
	unknown error // the set's own error for an unknown kid
}

func (k guardKeys) Key(ctx context.Context, kid string) (jose.JSONWebKey, error) {
	key, err := k.set.Key(ctx, kid)
	if errors.Is(err, k.unknown) {
		return key, guard.ErrUnknownKey
	}
	if pending, ok := errors.AsType[*relyingparty.PendingError](err); ok {
		return key, &guard.WaitError{Wait: pending.Wait, Why: pending.Error()}
	}
	return key, err
}

// trustedKeys are the keys of a trusted issuer, and its discovery document.
type trustedKeys struct {
	guardKeys
	discovery *relyingparty.Discovery
}

func (trustedKeys) Destruct() error { return nil }

// heldKeys are the entries of issuerKeys that a fhir_bearer holds.
type heldKeys []string

// take takes the keys of an issuer from the pool, until release.
func (h *heldKeys) take(ctx caddy.Context, issuer string, tls *option.TLS) (none trustedKeys, err error) {
	authorities, err := tls.Authorities()
	if err != nil {
		return none, err
	}
	config, err := tls.ClientConfig()
	if err != nil {
		return none, err
	}
	key := fmt.Sprintf("%q %q %q", issuer, *tls, authorities)
	keys, _, err := issuerKeys.LoadOrNew(key, func() (caddy.Destructor, error) {
		c := relyingparty.KeySetConfig{Issuer: issuer, Transport: relyingparty.Transport(config), Logger: ctx.Slogger()}
		set, err := relyingparty.NewKeySet(c)
		if err != nil {
			return nil, err
		}
		discovery, err := relyingparty.NewDiscovery(c)
		return trustedKeys{guardKeys{set, relyingparty.ErrUnknownKey}, discovery}, err
	})
	if err != nil {
		return none, err
	}
	*h = append(*h, key)
	return keys.(trustedKeys), nil
}

// release gives all keys back.
func (h heldKeys) release() error {
	var errs []error
	for _, key := range h {
		_, err := issuerKeys.Delete(key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

var (
	_ caddy.Destructor = trustedKeys{}
	_ guard.KeySet     = trustedKeys{}
)

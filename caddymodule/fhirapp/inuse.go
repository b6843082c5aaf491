package fhirapp

import (
	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// statesInUse keep over reloads what the configuration before knew, by where the signing keys are stored.
var statesInUse = caddy.NewUsagePool()

type stateInUse struct {
	keys   *keyring.KeysInUse // so that tokens stay valid if a key file was damaged or lost
	roster roster.Known       // so that nobody in it is unknown for a moment
	checks *revalidation.Checks
}

func (*stateInUse) Destruct() error { return nil }

// loadKeys makes the keyring, with the keys that the previous configuration had at that place, and returns all that is
// known from it. It reads nothing yet.
func (a *App) loadKeys(place string) (*stateInUse, error) {
	storage, err := keyStorage(a)
	if err != nil {
		return nil, err
	}
	a.keys = keyring.New(storage, KeysName(a.Issuer), fhirerror.Limit(a.logger))
	pooled, _, err := statesInUse.LoadOrNew(place, func() (caddy.Destructor, error) {
		return &stateInUse{keys: a.keys.InUse(), checks: new(revalidation.Checks)}, nil
	})
	if err != nil {
		return nil, err
	}
	a.pooled = place
	state := pooled.(*stateInUse)
	a.keys.TakeOver(state.keys)
	return state, nil
}

var _ caddy.Destructor = (*stateInUse)(nil)

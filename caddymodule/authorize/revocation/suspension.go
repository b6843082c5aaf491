package revocation

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A suspension is a cutoff of an identity provider's people that can be lifted: their tokens are neither valid nor revoked.

// SuspensionLifetime is the lifetime of a suspension that is not renewed. It is below a day, so that followers of a shared
// store receive the value.
const SuspensionLifetime = 12 * time.Hour

func suspensionKey(provider string) string { return cutoffPrefix + "idp:" + provider }

// Suspend suspends the tokens that a provider's people got up to a time, or renews the suspension.
func (r *Revocations) Suspend(ctx context.Context, provider string, until time.Time) error {
	text, err := until.MarshalText()
	if err != nil {
		return err
	}
	return r.inBoth(ctx, func() *store.Call {
		return &store.Call{Op: store.Put, Key: suspensionKey(provider), Value: text, TTL: SuspensionLifetime}
	})
}

// Resume lifts the suspension of a provider's people.
func (r *Revocations) Resume(ctx context.Context, provider string) error {
	return r.inBoth(ctx, func() *store.Call { return &store.Call{Op: store.Delete, Key: suspensionKey(provider)} })
}

// inBoth makes a call to the durable store and, if it is another, to the one near.
func (r *Revocations) inBoth(ctx context.Context, call func() *store.Call) error {
	steps := []store.Step{store.In(r.durable, call())}
	if r.near != r.durable {
		steps = append(steps, store.In(r.near, call()))
	}
	return store.Do(ctx, steps...)
}

// Suspended returns until when what was issued to a provider's people is suspended; the zero time if nothing is. What another
// gateway has just stored may not be known yet.
func (r *Revocations) Suspended(ctx context.Context, provider string) (time.Time, error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	return readCutoff(ctx, r.near, suspensionKey(provider))
}

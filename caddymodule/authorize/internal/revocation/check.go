package revocation

import (
	"context"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Check reads in a step whether a grant is void. Unlike [Revocations.Revoked], it misses
// nothing that another gateway has stored.
type Check struct {
	near    store.Store
	revoked *store.Call // nil without a family
	cutoffs []*store.Call
}

// Check returns the check of a grant by the id of its family, if it has one by now, and by
// what it is bound to. It reads as part of [Check.Step].
func (r *Revocations) Check(ctx context.Context, family string, b Binding) (*Check, error) {
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	c := &Check{near: r.near}
	if family != "" {
		c.revoked = &store.Call{Op: store.Get, Key: revokedPrefix + family}
	}
	for _, key := range append(commonCutoffs(b), rareCutoffs(b)...) {
		c.cutoffs = append(c.cutoffs, &store.Call{Op: store.Get, Key: key})
	}
	return c, nil
}

// Step is the step to make. Put it after those that store something new: either this reads the
// revocation, or who revokes finds what was stored.
func (c *Check) Step() store.Step {
	if c.revoked == nil {
		return store.In(c.near, c.cutoffs...)
	}
	return store.In(c.near, append([]*store.Call{c.revoked}, c.cutoffs...)...)
}

// Cutoff returns the latest cutoff that the step found, or the zero time.
func (c *Check) Cutoff() (latest time.Time, err error) {
	for _, call := range c.cutoffs {
		at, err := parseCutoff(call.Value)
		if err != nil {
			return latest, err
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, nil
}

// Void reports whether the step found a revocation of the family, or a cutoff of what was
// issued at a time.
func (c *Check) Void(issued time.Time) (bool, error) {
	if c.revoked != nil && c.revoked.Value != nil {
		return true, nil
	}
	cutoff, err := c.Cutoff()
	return IsCutOff(issued, cutoff), err
}

func parseCutoff(text []byte) (at time.Time, err error) {
	if text == nil {
		return at, nil
	}
	if err := at.UnmarshalText(text); err != nil {
		return at, fmt.Errorf("reading until when tokens are void: %w", err)
	}
	return at, nil
}

package revocation

import (
	"context"
	"errors"
	"strings"
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

// Binding is what a code or token is bound to, which decides what cutoffs apply.
type Binding struct {
	User, ClientID string // the sub and the client_id
	Session        string // the sid; empty if it outlives the session
	ByConsent      bool   // an access token that the person consented to
	ShortLived     bool   // a code or access token; refresh tokens that end are deleted
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

// Revoked reports whether an access token was revoked, by itself or with its grant. Where
// several gateways share the store, what another has just revoked may not be known yet; a
// [Check] finds it.
func (r *Revocations) Revoked(ctx context.Context, tokenID string) (bool, error) {
	if err := r.load(ctx); err != nil {
		return false, err
	}
	family, _, member := strings.Cut(tokenID, ".")
	revoked, err := r.isRevoked(ctx, tokenID)
	if member && err == nil && !revoked {
		return r.isRevoked(ctx, family)
	}
	return revoked, err
}

func (r *Revocations) isRevoked(ctx context.Context, id string) (bool, error) {
	_, err := r.near.Get(ctx, revokedPrefix+id)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// LatestCutoff returns the latest cutoff that applies to a binding, or the zero time. As with
// [Revocations.Revoked], one that another gateway has just stored may not be known yet.
func (r *Revocations) LatestCutoff(ctx context.Context, b Binding) (latest time.Time, err error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	keys := commonCutoffs(b)
	rare, err := readCutoff(ctx, r.near, RareCutoff)
	if !rare.IsZero() {
		keys = append(keys, rareCutoffs(b)...)
	}
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.near, key)
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, err
}

func commonCutoffs(b Binding) (keys []string) {
	if b.Session != "" {
		keys = append(keys, SessionCutoff(b.Session))
	}
	if b.ByConsent {
		keys = append(keys, ConsentCutoff(b.User, b.ClientID))
	}
	return keys
}

// rareCutoffs are those that [RareCutoff] stands for.
func rareCutoffs(b Binding) []string {
	keys := []string{UserCutoff(b.User), ClientCutoff(b.ClientID), PairCutoff(b.User, b.ClientID)}
	if b.ShortLived {
		keys = append(keys, revocationsCutoff(b.User, b.ClientID))
	}
	if b.ShortLived && b.Session != "" {
		keys = append(keys, endedSessionsCutoff(b.User))
	}
	return keys
}

package revocation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A cutoff is a stored time: grants issued up to then to a user, client or session are void. One
// entry voids any number of tokens.

const (
	cutoffPrefix = "cutoff:"

	// RareCutoff marks the existence of cutoffs made by an operator, or replacing many entries of a
	// user. Without it, checks of access tokens skip five lookups.
	RareCutoff = cutoffPrefix + "rare"

	// ClockJump is the tolerated forward jump of a clock: revocations outlast tokens by that time, so
	// that no expired and revoked token becomes valid once the clock is corrected.
	ClockJump = 24 * time.Hour

	// cutoffLifetime exceeds the lifetime of every access token and code. Refresh tokens are deleted instead.
	cutoffLifetime = keyring.Retention + ClockJump + time.Minute
)

// UserCutoff returns the key of the cutoff for all grants of a user.
func UserCutoff(user string) string { return cutoffPrefix + "user:" + user }

// ClientCutoff returns the key of the cutoff for all grants to a client.
func ClientCutoff(clientID string) string { return cutoffPrefix + "client:" + clientID }

// SessionCutoff returns the key of the cutoff for a session.
func SessionCutoff(sid string) string { return cutoffPrefix + "session:" + sid }

// PairCutoff returns the key of the cutoff for a user's grants to one client.
func PairCutoff(user, clientID string) string { return cutoffPrefix + "pair:" + pair(user, clientID) }

// revocationsCutoff returns the key of the cutoff that replaces older revocations of a user's
// grants to a client; see [recentList].
func revocationsCutoff(user, clientID string) string {
	return cutoffPrefix + "revocations:" + pair(user, clientID)
}

// endedSessionsCutoff returns the key of the cutoff that replaces older ended sessions of a user.
func endedSessionsCutoff(user string) string { return cutoffPrefix + "ended-sessions:" + user }

// ConsentCutoff returns the key of the cutoff for a user's consent to a client. It applies to
// access tokens only: codes and refresh tokens are compared with the consent itself.
func ConsentCutoff(user, clientID string) string {
	return cutoffPrefix + "consent:" + pair(user, clientID)
}

// pair joins two names unambiguously.
func pair(user, clientID string) string { return strconv.Itoa(len(user)) + ":" + user + clientID }

// clockError is the maximum difference between gateways' estimates of their store's time, about the
// duration of a response. Cutoffs are dated later by that time, so that tokens issued by another
// gateway just before do not survive. Later tokens are dated even later; see [DateAfter].
const clockError = 2 * time.Second

// margin returns how far in the future a cutoff must be.
func (r *Revocations) margin() time.Duration {
	if store.IsShared(r.durable) {
		return clockError
	}
	return 0
}

// CutOff voids everything issued until now.
func (r *Revocations) CutOff(ctx context.Context, keys ...string) error {
	return r.CutOffAt(ctx, r.Now().Add(r.margin()), keys...)
}

// CutOffAt voids everything issued until a time. If the durable store fails, nothing is voided.
func (r *Revocations) CutOffAt(ctx context.Context, at time.Time, keys ...string) (err error) {
	if r.durable != r.near {
		err = r.putCutoffs(ctx, r.durable, at, keys, nil)
	}
	if err == nil {
		err = r.putCutoffs(ctx, r.near, at, keys, nil)
	}
	if err != nil {
		return fmt.Errorf("storing that tokens are void: %w", err)
	}
	return nil
}

// EndSession voids everything issued in a session, and deletes entries that end with it in both
// stores. If a store is full, they make room for the cutoff, so that logout always works. Durable
// entries are deleted last: while they exist, a failure can be repaired.
//
// The cutoff is in the future, to cover grants issued until the session is deleted. No other session has the same sid.
func (r *Revocations) EndSession(ctx context.Context, sid string, inFlight, durable []string) (err error) {
	at, cutoff := r.Now().Add(endingTime), []string{SessionCutoff(sid)}
	if r.near != r.durable {
		if err = r.putCutoffs(ctx, r.near, at, cutoff, nil); errors.Is(err, store.ErrFull) {
			err = r.putCutoffs(ctx, r.near, at, cutoff, inFlight)
		}
	}
	if err == nil {
		err = r.putCutoffs(ctx, r.durable, at, cutoff, durable)
	}
	if err != nil {
		return fmt.Errorf("storing that a session has ended: %w", err)
	}
	if r.near != r.durable {
		_ = store.Do(ctx, store.StepIn(r.near, store.Deleting(inFlight...)...)) // on error, the entries expire
	}
	return nil
}

// endingTime exceeds the time needed to end a session.
const endingTime = time.Minute

// putCutoffs stores cutoffs unless later ones exist, and deletes other keys in the same step.
func (r *Revocations) putCutoffs(ctx context.Context, in store.Store, at time.Time, keys, ended []string) error {
	var stored [][]byte
	for _, key := range keys {
		value, err := in.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		stored = append(stored, value)
	}
	for ctx.Err() == nil {
		calls, err := r.laterCutoffs(at, keys, stored)
		if err != nil {
			return err
		}
		if err = store.Do(ctx, store.StepIn(in, append(calls, store.Deleting(ended...)...)...)); !store.IsConflict(err) {
			return err
		}
		if stored, err = store.Values(ctx, in, keys...); err != nil { // a copy may be stale
			return err
		}
	}
	return ctx.Err()
}

// laterCutoffs returns the calls that replace earlier cutoffs.
func (r *Revocations) laterCutoffs(at time.Time, keys []string, stored [][]byte) (calls []*store.Call, err error) {
	text, err := at.MarshalText()
	left := store.Until(r.durable, at.Add(cutoffLifetime))
	if err != nil || left <= 0 {
		return nil, err
	}
	for i, key := range keys {
		there := new(time.Time)
		if stored[i] == nil || there.UnmarshalText(stored[i]) != nil || !there.After(at) {
			calls = append(calls, store.Replacing(key, stored[i], text, left))
		}
	}
	return calls, nil
}

func readCutoff(ctx context.Context, in store.Store, key string) (time.Time, error) {
	text, err := in.Get(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, fmt.Errorf("reading until when tokens are void: %w", err)
	}
	return parseCutoff(text)
}

// IsCutOff reports whether a grant issued at a time is void. The zero time, from a version before
// cutoffs, precedes every cutoff.
func IsCutOff(issued, cutoff time.Time) bool {
	return !cutoff.IsZero() && !issued.After(cutoff)
}

// DateAfter returns the issue time for a grant issued now: the present, or just after the cutoff if
// a coarse or reset clock has not passed it yet.
func DateAfter(now, cutoff time.Time) time.Time {
	if IsCutOff(now, cutoff) {
		return cutoff.Add(time.Nanosecond)
	}
	return now
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

// A suspension is a revocable cutoff for the people of an identity provider: their tokens are neither valid nor revoked.

// SuspensionLifetime is the lifetime of a suspension without renewal. It is below a day, so that
// followers of a shared store receive the value.
const SuspensionLifetime = 12 * time.Hour

func suspensionKey(provider string) string { return cutoffPrefix + "idp:" + provider }

// Suspend suspends tokens issued to a provider's people up to a time, or renews the suspension.
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

// inBoth executes a call in the durable store and in the near store, if different.
func (r *Revocations) inBoth(ctx context.Context, call func() *store.Call) error {
	steps := []store.Step{store.StepIn(r.durable, call())}
	if r.near != r.durable {
		steps = append(steps, store.StepIn(r.near, call()))
	}
	return store.Do(ctx, steps...)
}

// Suspended returns the time up to which tokens of a provider's people are suspended; zero without
// a suspension. Another gateway's change may not be visible yet.
func (r *Revocations) Suspended(ctx context.Context, provider string) (time.Time, error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	return readCutoff(ctx, r.near, suspensionKey(provider))
}

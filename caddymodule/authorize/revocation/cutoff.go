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

// A cutoff is a stored time. All grants to a user, to a client or in a session that were issued up to then are void. One entry
// voids any number of tokens.

const (
	cutoffPrefix = "cutoff:"

	// RareCutoffMarker is stored if there may be cutoffs set by an operator, or cutoffs that replace many entries of a user. If
	// it does not exist, checks of access tokens skip five lookups.
	RareCutoffMarker = cutoffPrefix + "rare"

	// MaxClockJump is how far a clock may jump forward and back again. Revocations are stored longer than the lifetime of
	// tokens by this time, so that no revoked token becomes valid after the clock is corrected.
	MaxClockJump = 24 * time.Hour

	// cutoffLifetime is longer than the lifetime of any access token or code. Refresh tokens are deleted instead.
	cutoffLifetime = keyring.Retention + MaxClockJump + time.Minute
)

// UserCutoffKey returns the store key of the cutoff for all grants of a user.
func UserCutoffKey(user string) string { return cutoffPrefix + "user:" + user }

// ClientCutoffKey returns the store key of the cutoff for all grants to a client.
func ClientCutoffKey(clientID string) string { return cutoffPrefix + "client:" + clientID }

// SessionCutoffKey returns the store key of the cutoff for all grants in a session.
func SessionCutoffKey(sid string) string { return cutoffPrefix + "session:" + sid }

// UserClientCutoffKey returns the store key of the cutoff for a user's grants to one client.
func UserClientCutoffKey(user, clientID string) string {
	return cutoffPrefix + "pair:" + joinPair(user, clientID)
}

// revocationsCutoffKey returns the store key of the cutoff that replaces the oldest revocations of a user's grants to a client;
// see [limitedList].
func revocationsCutoffKey(user, clientID string) string {
	return cutoffPrefix + "revocations:" + joinPair(user, clientID)
}

// endedSessionsCutoffKey returns the store key of the cutoff that replaces a user's oldest session cutoffs; see [limitedList].
func endedSessionsCutoffKey(user string) string { return cutoffPrefix + "ended-sessions:" + user }

// ConsentCutoffKey returns the store key of the cutoff for a user's consent to a client. It applies only to access tokens.
// Codes and refresh tokens are compared with the consent itself.
func ConsentCutoffKey(user, clientID string) string {
	return cutoffPrefix + "consent:" + joinPair(user, clientID)
}

// joinPair joins a user and a client_id so that different pairs have different results.
func joinPair(user, clientID string) string { return strconv.Itoa(len(user)) + ":" + user + clientID }

// maxClockError is the maximum difference between gateways' estimates of their store's time, about the duration of a response.
// Cutoffs are set this far in the future, so that they apply to tokens that another gateway has just issued. Tokens issued
// later have a later issue time; see [IssueTimeAfter].
const maxClockError = 2 * time.Second

// cutoffMargin returns how far in the future a cutoff must be.
func (r *Revocations) cutoffMargin() time.Duration {
	if store.IsShared(r.durableStore) {
		return maxClockError
	}
	return 0
}

// CutOff voids everything issued until now for the cutoff keys.
func (r *Revocations) CutOff(ctx context.Context, keys ...string) error {
	return r.CutOffAt(ctx, r.Now().Add(r.cutoffMargin()), keys...)
}

// CutOffAt voids everything issued until at for the cutoff keys. If the durable store fails, nothing is voided.
func (r *Revocations) CutOffAt(ctx context.Context, at time.Time, keys ...string) (err error) {
	if r.durableStore != r.nearStore {
		err = r.putCutoffs(ctx, r.durableStore, at, keys, nil)
	}
	if err == nil {
		err = r.putCutoffs(ctx, r.nearStore, at, keys, nil)
	}
	if err != nil {
		return fmt.Errorf("storing token revocation: %w", err)
	}
	return nil
}

// EndSession voids everything issued in a session, and deletes the session's entries inFlight and durable from their stores. If
// a store is full, deleting these frees space for the cutoff, so that logout always works. The durable entries are deleted
// last: while they exist, the operation can be repeated after a failure.
//
// The cutoff is in the future, to include grants issued until the session is deleted. No other session has the same sid.
func (r *Revocations) EndSession(ctx context.Context, sid string, inFlight, durable []string) (err error) {
	at, cutoff := r.Now().Add(maxSessionEndTime), []string{SessionCutoffKey(sid)}
	if r.nearStore != r.durableStore {
		if err = r.putCutoffs(ctx, r.nearStore, at, cutoff, nil); errors.Is(err, store.ErrFull) {
			err = r.putCutoffs(ctx, r.nearStore, at, cutoff, inFlight)
		}
	}
	if err == nil {
		err = r.putCutoffs(ctx, r.durableStore, at, cutoff, durable)
	}
	if err != nil {
		return fmt.Errorf("storing end of session: %w", err)
	}
	if r.nearStore != r.durableStore {
		_ = store.Do(ctx, store.NewStep(r.nearStore, store.DeleteCalls(inFlight...)...)) // on failure, the entries remain until they expire
	}
	return nil
}

// maxSessionEndTime is longer than ending a session takes.
const maxSessionEndTime = time.Minute

// putCutoffs stores cutoffs, except where a later cutoff exists, and deletes other keys in the same step.
func (r *Revocations) putCutoffs(ctx context.Context, in store.Store, at time.Time, keys, deleted []string) error {
	var stored [][]byte
	for _, key := range keys {
		value, err := in.Get(ctx, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		stored = append(stored, value)
	}
	for ctx.Err() == nil {
		calls, err := r.cutoffCalls(at, keys, stored)
		if err != nil {
			return err
		}
		if err = store.Do(ctx, store.NewStep(in, append(calls, store.DeleteCalls(deleted...)...)...)); !store.IsConflict(err) {
			return err
		}
		if stored, err = store.ReadValues(ctx, in, keys...); err != nil { // values read from a replica may be stale
			return err
		}
	}
	return ctx.Err()
}

// cutoffCalls returns the store calls that replace earlier cutoffs.
func (r *Revocations) cutoffCalls(at time.Time, keys []string, stored [][]byte) (calls []*store.Call, err error) {
	text, err := at.MarshalText()
	ttl := store.Until(r.durableStore, at.Add(cutoffLifetime))
	if err != nil || ttl <= 0 {
		return nil, err
	}
	for i, key := range keys {
		existing := new(time.Time)
		if stored[i] == nil || existing.UnmarshalText(stored[i]) != nil || !existing.After(at) {
			calls = append(calls, store.ReplaceCall(key, stored[i], text, ttl))
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
		return time.Time{}, fmt.Errorf("reading token revocation: %w", err)
	}
	return parseCutoff(text)
}

// IsCutOff reports whether a cutoff voids a grant issued at a time. The zero time, in grants of versions that had no cutoffs,
// is before every cutoff.
func IsCutOff(issued, cutoff time.Time) bool {
	return !cutoff.IsZero() && !issued.After(cutoff)
}

// IssueTimeAfter returns the issue time for a grant issued now. It is now or, if the clock has not yet passed the cutoff
// because it is coarse or was reset, just after the cutoff.
func IssueTimeAfter(now, cutoff time.Time) time.Time {
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
		return at, fmt.Errorf("reading token revocation: %w", err)
	}
	return at, nil
}

// A suspension is a cutoff for an identity provider's people that can be lifted: it does not revoke their tokens.

// SuspensionLifetime is how long a suspension lasts unless it is renewed. It is less than a day, so that followers of a shared
// store receive the value.
const SuspensionLifetime = 12 * time.Hour

func suspensionKey(provider string) string { return cutoffPrefix + "idp:" + provider }

// Suspend suspends tokens that were issued to a provider's people until a time, or renews the suspension.
func (r *Revocations) Suspend(ctx context.Context, provider string, until time.Time) error {
	text, err := until.MarshalText()
	if err != nil {
		return err
	}
	return r.doInBothStores(ctx, func() *store.Call {
		return &store.Call{Op: store.Put, Key: suspensionKey(provider), Value: text, TTL: SuspensionLifetime}
	})
}

// Resume lifts the suspension of a provider's people.
func (r *Revocations) Resume(ctx context.Context, provider string) error {
	return r.doInBothStores(ctx, func() *store.Call { return &store.Call{Op: store.Delete, Key: suspensionKey(provider)} })
}

// doInBothStores executes a call in the durable store and, if it is a different one, in the near store.
func (r *Revocations) doInBothStores(ctx context.Context, call func() *store.Call) error {
	steps := []store.Step{store.NewStep(r.durableStore, call())}
	if r.nearStore != r.durableStore {
		steps = append(steps, store.NewStep(r.nearStore, call()))
	}
	return store.Do(ctx, steps...)
}

// SuspendedUntil returns the time until which tokens of a provider's people are suspended; zero if there is no suspension.
// Changes by other gateways may not be visible yet.
func (r *Revocations) SuspendedUntil(ctx context.Context, provider string) (time.Time, error) {
	if err := r.load(ctx); err != nil {
		return time.Time{}, err
	}
	return readCutoff(ctx, r.nearStore, suspensionKey(provider))
}

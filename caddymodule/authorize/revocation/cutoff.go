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

// A cutoff is a moment in the store: what a person, client, session or pair of person
// and client was given until then is void. It needs one entry, however much was given,
// and nobody needs to keep a list of that. Like a revocation it is in the store, where
// each check of an access token looks, and comes back from the durable store after a
// restart.

const (
	cutoffPrefix = "cutoff:"

	// RareCutoff is there as long as a cutoff is that an operator made, or that stands for
	// many endings of one person. These are rare, and each check of an access token would
	// look for five.
	RareCutoff = cutoffPrefix + "rare"

	// cutoffLifetime is longer than anything lives that a cutoff must reach: access
	// tokens and codes. Refresh tokens are deleted.
	cutoffLifetime = keyring.Retention + time.Minute
)

// UserCutoff names the cutoff of all that a user let clients have.
func UserCutoff(user string) string { return cutoffPrefix + "user:" + user }

// ClientCutoff names the cutoff of all that a client was given.
func ClientCutoff(clientID string) string { return cutoffPrefix + "client:" + clientID }

// SessionCutoff names the cutoff of what was given in a session.
func SessionCutoff(sid string) string { return cutoffPrefix + "session:" + sid }

// PairCutoff names the cutoff of what a user let one client have.
func PairCutoff(user, clientID string) string { return cutoffPrefix + "pair:" + pair(user, clientID) }

// revocationsCutoff stands for older revocations of what a user let a client have, and
// endedSessionsCutoff for older sessions of theirs that ended (see [recentList]).
func revocationsCutoff(user, clientID string) string {
	return cutoffPrefix + "revocations:" + pair(user, clientID)
}

func endedSessionsCutoff(user string) string { return cutoffPrefix + "ended-sessions:" + user }

// ConsentCutoff is for access tokens alone: whether a code or refresh token goes
// beyond the person's consent, its grant says.
func ConsentCutoff(user, clientID string) string {
	return cutoffPrefix + "consent:" + pair(user, clientID)
}

// pair is one name for two: the length keeps them apart.
func pair(user, clientID string) string { return strconv.Itoa(len(user)) + ":" + user + clientID }

// CutOff makes void what was given until now.
func (r *Revocations) CutOff(ctx context.Context, keys ...string) error {
	return r.CutOffAt(ctx, time.Now(), keys...)
}

// CutOffAt makes void what was given until a time. What cannot be kept over a restart is
// not made void.
func (r *Revocations) CutOffAt(ctx context.Context, at time.Time, keys ...string) (err error) {
	for _, key := range keys {
		if r.durable != r.store && err == nil {
			err = putCutoff(ctx, r.durable, key, at)
		}
		if err == nil {
			err = putCutoff(ctx, r.store, key, at)
		}
	}
	if err != nil {
		return fmt.Errorf("storing that tokens are void: %w", err)
	}
	return nil
}

// putCutoff stores a cutoff unless there is a later one, be it that of an ending at the
// same moment, or one that came while the durable store was read.
func putCutoff(ctx context.Context, in store.Store, key string, at time.Time) error {
	text, err := at.MarshalText()
	left := time.Until(at.Add(cutoffLifetime))
	if err != nil || left <= 0 {
		return err
	}
	for ctx.Err() == nil {
		stored, err := in.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			err = in.Add(ctx, key, text, left)
		case err != nil:
			return err
		default:
			if there := new(time.Time); there.UnmarshalText(stored) == nil && there.After(at) {
				return nil
			}
			err = in.Swap(ctx, key, stored, text, left)
		}
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
	return ctx.Err()
}

// Binding is to whom and how something was given: what decides which cutoffs reach it.
type Binding struct {
	User, ClientID string // by whom, and to whom
	Session        string // "": what it gives lives on when that is over
	ByConsent      bool   // of access tokens
	ShortLived     bool   // codes and access tokens: of refresh tokens, those that ended are removed
}

// LatestCutoff returns the latest cutoff that reaches what was given; the zero time
// where there is none.
func (r *Revocations) LatestCutoff(ctx context.Context, g Binding) (latest time.Time, err error) {
	if err := r.loadRevocations(ctx); err != nil {
		return time.Time{}, err
	}
	keys, err := r.cutoffKeys(ctx, g)
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.store, key)
		}
		if at.After(latest) {
			latest = at
		}
	}
	return latest, err
}

func (r *Revocations) cutoffKeys(ctx context.Context, g Binding) (keys []string, err error) {
	if g.Session != "" {
		keys = append(keys, SessionCutoff(g.Session))
	}
	if g.ByConsent {
		keys = append(keys, ConsentCutoff(g.User, g.ClientID))
	}
	rare, err := readCutoff(ctx, r.store, RareCutoff)
	if rare.IsZero() || err != nil {
		return keys, err
	}
	keys = append(keys, UserCutoff(g.User), ClientCutoff(g.ClientID), PairCutoff(g.User, g.ClientID))
	if g.ShortLived {
		keys = append(keys, revocationsCutoff(g.User, g.ClientID))
	}
	if g.ShortLived && g.Session != "" {
		keys = append(keys, endedSessionsCutoff(g.User))
	}
	return keys, nil
}

func readCutoff(ctx context.Context, in store.Store, key string) (at time.Time, err error) {
	text, err := in.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, nil
	}
	if err == nil {
		err = at.UnmarshalText(text)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("reading until when tokens are void: %w", err)
	}
	return at, nil
}

// loadCutoffs takes into the store what the durable one knows.
func (r *Revocations) loadCutoffs(ctx context.Context) error {
	keys, err := r.durable.List(ctx, cutoffPrefix)
	for _, key := range keys {
		var at time.Time
		if err == nil {
			at, err = readCutoff(ctx, r.durable, key)
		}
		if err == nil {
			err = putCutoff(ctx, r.store, key, at)
		}
	}
	return err
}

// IsCutOff reports whether what was given at a time is void. What has no time was
// given by a version that knew no cutoffs, and ends with the first.
func IsCutOff(given, cutoff time.Time) bool {
	return !cutoff.IsZero() && !given.After(cutoff)
}

// DateAfter is the time to give to what is given now: the present, or just after a
// cutoff, which a clock that is coarse or was set back may not have reached.
func DateAfter(cutoff time.Time) time.Time {
	now := time.Now()
	if IsCutOff(now, cutoff) {
		return cutoff.Add(time.Nanosecond)
	}
	return now
}

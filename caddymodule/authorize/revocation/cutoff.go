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

// A cutoff is a stored time: what was issued until then in the name of a person, client or
// session is void. One entry voids any number of tokens.

const (
	cutoffPrefix = "cutoff:"

	// RareCutoff says that there are cutoffs by an operator, or in place of many entries of
	// one person. It saves most checks of an access token from looking for five of these.
	RareCutoff = cutoffPrefix + "rare"

	// cutoffLifetime is longer than that of any access token or code. Refresh tokens are
	// deleted instead.
	cutoffLifetime = keyring.Retention + time.Minute
)

// UserCutoff is the key of the cutoff of all grants of a user.
func UserCutoff(user string) string { return cutoffPrefix + "user:" + user }

// ClientCutoff is the key of the cutoff of all grants to a client.
func ClientCutoff(clientID string) string { return cutoffPrefix + "client:" + clientID }

// SessionCutoff is the key of the cutoff of a session.
func SessionCutoff(sid string) string { return cutoffPrefix + "session:" + sid }

// PairCutoff is the key of the cutoff of a user's grants to one client.
func PairCutoff(user, clientID string) string { return cutoffPrefix + "pair:" + pair(user, clientID) }

// revocationsCutoff stands for older revocations of a user's grants to a client; see
// [recentList].
func revocationsCutoff(user, clientID string) string {
	return cutoffPrefix + "revocations:" + pair(user, clientID)
}

// endedSessionsCutoff stands for older ended sessions of a user.
func endedSessionsCutoff(user string) string { return cutoffPrefix + "ended-sessions:" + user }

// ConsentCutoff is the key of the cutoff of a user's consent to a client. It affects access
// tokens only: codes and refresh tokens are compared with the consent itself.
func ConsentCutoff(user, clientID string) string {
	return cutoffPrefix + "consent:" + pair(user, clientID)
}

// pair joins two names unambiguously.
func pair(user, clientID string) string { return strconv.Itoa(len(user)) + ":" + user + clientID }

// CutOff voids what was issued until now.
func (r *Revocations) CutOff(ctx context.Context, keys ...string) error {
	return r.CutOffAt(ctx, time.Now(), keys...)
}

// CutOffAt voids what was issued until a time. If the durable store fails, nothing is void.
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

// putCutoff stores a cutoff unless a later one is stored already.
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

// Binding is what a code or token is bound to, which decides what cutoffs apply.
type Binding struct {
	User, ClientID string // the sub and the client_id
	Session        string // the sid; empty if it outlives the session
	ByConsent      bool   // an access token that the person consented to
	ShortLived     bool   // a code or access token; refresh tokens that end are deleted
}

// LatestCutoff returns the latest cutoff that applies to a binding, or the zero time.
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

func readCutoff(ctx context.Context, in store.Store, key string) (time.Time, error) {
	at, err := readTime(ctx, in, key)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading until when tokens are void: %w", err)
	}
	return at, nil
}

// readTime returns a stored time, or the zero time if there is none.
func readTime(ctx context.Context, in store.Store, key string) (at time.Time, err error) {
	text, err := in.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return time.Time{}, nil
	}
	if err == nil {
		err = at.UnmarshalText(text)
	}
	return at, err
}

// loadCutoffs copies the cutoffs of the durable store.
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

// IsCutOff reports whether what was issued at a time is void. The zero time, of a version
// before cutoffs, is before any.
func IsCutOff(issued, cutoff time.Time) bool {
	return !cutoff.IsZero() && !issued.After(cutoff)
}

// DateAfter returns the time of something issued now: the present or, if a coarse or reset
// clock has not passed the cutoff yet, just after that.
func DateAfter(cutoff time.Time) time.Time {
	now := time.Now()
	if IsCutOff(now, cutoff) {
		return cutoff.Add(time.Nanosecond)
	}
	return now
}

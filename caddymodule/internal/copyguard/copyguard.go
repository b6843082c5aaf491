// Package copyguard marks stores that must not be used: a copy detects that gateways are using a store, and gateways detect an
// incomplete copy.
package copyguard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// CopyKind is the kind of the entries that mark the target of a copy.
	CopyKind = "copying"

	// IncompleteKey is the key of the mark in the target of an incomplete copy.
	IncompleteKey = CopyKind + ":mark"

	// runningPrefix is the key prefix of the entries with which gateways mark a store as in use, one per gateway.
	runningPrefix = "running:"

	// renewInterval is the interval at which a gateway renews its mark.
	renewInterval = 10 * time.Second

	// RunningLifetime is how long a mark remains valid after its gateway was killed.
	RunningLifetime = 3 * renewInterval
)

var (
	// ErrRunning is returned if a gateway is using a store that must not be used during a copy.
	ErrRunning = errors.New("a running gateway uses the store")

	// ErrIncomplete is returned for a store that contains an incomplete copy of another store.
	ErrIncomplete = errors.New("the store contains an incomplete copy of another store: complete it by running the same caddy fhir-store copy command again")
)

// Announce marks a store as in use by a gateway until ctx is canceled. If the store accepts no new entries, it is not marked;
// a copy then detects only changes that the gateway makes.
func Announce(ctx context.Context, s store.Store) {
	key := runningPrefix + rand.Text()
	host, _ := os.Hostname() // host name for messages; may be empty
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		_ = s.Put(ctx, key, []byte(host), RunningLifetime) // retried at the next tick
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = s.Delete(ctx, key) // if this fails, the mark expires
}

// CheckNotRunning returns [ErrRunning] if a running gateway has marked the store as in use.
func CheckNotRunning(ctx context.Context, s store.Store) error {
	keys, err := s.List(ctx, runningPrefix)
	if err != nil {
		return err
	}
	values, err := store.ReadValues(ctx, s, keys...)
	for i, host := range values {
		if host != nil {
			return fmt.Errorf("%w: host %q (%s); if the gateway was killed, wait until %v have passed", ErrRunning, host, keys[i], RunningLifetime)
		}
	}
	return err
}

// CheckComplete returns [ErrIncomplete] if a copy into the store was interrupted.
func CheckComplete(ctx context.Context, s store.Store) error {
	_, err := s.Get(ctx, IncompleteKey)
	switch {
	case err == nil:
		return ErrIncomplete
	case errors.Is(err, store.ErrNotFound):
		return nil
	}
	return err
}

// IsMarker reports whether a key is that of a mark. Marks must not be copied.
func IsMarker(key string) bool {
	return store.KindOf(key) == CopyKind || strings.HasPrefix(key, runningPrefix)
}

package store

import (
	"context"
	"strings"
	"time"
)

// A Shared store serves several gateways at once.
type Shared interface {
	Store

	// Follow reports the entries of followed kinds: first all there are, then each that any
	// process changes, in the order of the changes. Every second or so it also reports that
	// nothing changed. It returns when ctx ends or the store fails; a further call starts
	// again with all there are. The followed kinds are set when the store is made; see
	// [KindOf]. Of entries that live for longer than 49 hours, a store may at first report only
	// what changed lately, and of a change only that it happened.
	Follow(ctx context.Context, tell func(Update)) error

	// Now is the time by the store's clock, as of the latest answer that had it, without
	// asking. Gateways date by it what they compare with each other.
	Now() time.Time
}

// An Update is what a [Shared] store reports to a follower.
type Update struct {
	Whole   bool     // what is not in Changes does not exist
	Changes []Change // the oldest first; some may have been reported before

	// Heard is when, by this process's clock, the store was asked: all earlier changes have
	// been reported now.
	Heard time.Time
}

// A Change is an entry as it is after a change.
type Change struct {
	Key     string    // of the entry
	Value   []byte    // nil: it was deleted, or lives for longer than 49 hours
	Expires time.Time // by this process's clock
}

// KindOf returns the kind of a key: what is before its first colon.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// clocked is what a shared store has, and each wrapper around one.
type clocked interface{ Now() time.Time }

// IsShared reports whether several gateways may use a store at once.
func IsShared(s Store) bool {
	_, ok := s.(clocked)
	return ok
}

// Now returns the time by a store's clock if it is shared, and else this process's.
func Now(s Store) time.Time {
	if shared, ok := s.(clocked); ok {
		return shared.Now()
	}
	return time.Now()
}

// Since is [time.Since] by a store's clock.
func Since(s Store, t time.Time) time.Duration { return Now(s).Sub(t) }

// Until is [time.Until] by a store's clock.
func Until(s Store, t time.Time) time.Duration { return t.Sub(Now(s)) }

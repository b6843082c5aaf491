package session

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// records are those of all sessions.
type records struct{ store store.Store }

// all yields all sessions, or the errors of reading them.
func (r records) all(ctx context.Context) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		keys, err := r.store.List(ctx, Key(""))
		if err != nil && !yield(nil, err) {
			return
		}
		for stored, err := range r.of(ctx, keys) {
			if !yield(stored, err) {
				return
			}
		}
	}
}

// of yields the sessions of some keys that there are, or the errors of reading them.
func (r records) of(ctx context.Context, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		for some := range slices.Chunk(keys, readAtOnce) {
			for stored, err := range r.some(ctx, some) {
				if (stored != nil || err != nil) && !yield(stored, err) {
					return
				}
			}
		}
	}
}

// readAtOnce is how many sessions are read in one step.
const readAtOnce = 100

// some yields the sessions of some keys, nil for those that have ended by now.
func (r records) some(ctx context.Context, keys []string) iter.Seq2[*Session, error] {
	return func(yield func(*Session, error) bool) {
		values, err := store.Values(ctx, r.store, keys...)
		if err != nil {
			yield(nil, fmt.Errorf("reading sessions: %w", err))
			return
		}
		for i, value := range values {
			if !yield(parse(strings.TrimPrefix(keys[i], Key("")), value)) {
				return
			}
		}
	}
}

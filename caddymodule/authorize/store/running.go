package store

import (
	"context"
	"slices"
	"strings"
)

const (
	// RunningPrefix begins the keys of the entries by which gateways announce that they use a store, each with one of its own.
	RunningPrefix = "running:"

	// ListingPrefix begins those of gateways that list all entries of people.
	ListingPrefix = RunningPrefix + "2."

	// IndexKey is the key of the entry that says that all entries of people are listed. It is not copied to another store,
	// and a copy deletes it: what comes from elsewhere may not be listed.
	IndexKey = "index:people"
)

// OlderRuns reports whether a gateway uses a store, or was killed lately, that does not list all entries of people.
func OlderRuns(ctx context.Context, s Store) (bool, error) {
	keys, err := s.List(ctx, RunningPrefix)
	return slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, ListingPrefix) }), err
}

package store

import (
	"context"
	"slices"
	"strings"
)

const (
	// RunningPrefix is the key prefix of the entries by which gateways announce that they use a store, one per gateway.
	RunningPrefix = "running:"

	// ListingPrefix is the key prefix of gateways that list all entries of people.
	ListingPrefix = RunningPrefix + "2."

	// IndexKey is the key of the entry that marks all entries of people as listed. It is not copied to another store, and a
	// copy deletes it: copied entries may not be listed.
	IndexKey = "index:people"
)

// OlderRuns reports whether a gateway uses a store, or was killed lately, that does not list all entries of people.
func OlderRuns(ctx context.Context, s Store) (bool, error) {
	keys, err := s.List(ctx, RunningPrefix)
	return slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, ListingPrefix) }), err
}

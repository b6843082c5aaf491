package stores

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Follower is a part of a gateway that tells the same part of other gateways something, by entries of a kind of its own in
// a store that they share.
type Follower interface {
	// Hear is told what the store tells. It does not wait.
	Hear(u store.Update)
}

// NewFollower makes the follower of a store, which lives as long as the store's connections do.
type NewFollower func(shared store.Store, logger *slog.Logger) Follower

// followers are those of each kind.
var followers = map[string]NewFollower{}

// Follow lets each store that several gateways share have a follower of a kind. It is for a package's initialization.
func Follow(kind string, newFollower NewFollower) { followers[kind] = newFollower }

func followerKinds() []string { return slices.Sorted(maps.Keys(followers)) }

func newFollowers(shared store.Store, logger *slog.Logger) map[string]Follower {
	made := make(map[string]Follower, len(followers))
	for kind, newFollower := range followers {
		made[kind] = newFollower(shared, logger)
	}
	return made
}

// Follower returns that of a kind, of the first store that several gateways share; nil if there is none.
func (s *Set) Follower(kind string) Follower {
	if len(s.shared) == 0 {
		return nil
	}
	return s.shared[0].followers[kind]
}

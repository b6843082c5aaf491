package authorizetest

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// Replicated makes a replica of a store that a test's server uses for everything.
func Replicated(t testing.TB) (*replica.Replica, *storetest.Gateway) {
	t.Helper()
	g := storetest.NewShared(slices.Concat(store.MirroredKinds, store.CachedKinds)...).Gateway()
	r := replica.New(g, replica.Config{
		Mirrored: store.MirroredKinds, Cached: store.CachedKinds, Logger: slog.New(slog.DiscardHandler),
	})
	r.SetMaxLag(time.Hour)
	go r.Run(t.Context())
	return r, g
}

// Quiet reports whether a request takes no round trip, once the replica has heard of what this
// process changed before.
func Quiet(g *storetest.Gateway, do func()) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		before := g.RoundTrips()
		if do(); g.RoundTrips() == before {
			return true
		}
		<-tick.C
	}
	return false
}

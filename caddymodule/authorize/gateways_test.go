package authorize_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/replica"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

// gateways are servers of one configuration that share a store, each with a copy of its own
// of what was revoked. They answer in turns.
type gateways struct {
	shared  *storetest.Shared
	handles []*storetest.Gateway
	servers []*authorize.Server
	turn    atomic.Int64
}

func (g *gateways) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.servers[int(g.turn.Add(1))%len(g.servers)].ServeHTTP(w, r)
}

// newGateways starts n gateways in a bubble of synctest.
func newGateways(t *testing.T, n int, change func(*authorize.Config)) *gateways {
	t.Helper()
	kinds := slices.Concat(authorize.MirroredKinds, authorize.CachedKinds)
	g := &gateways{shared: storetest.NewShared(kinds...)}
	for range n {
		handle := g.shared.Gateway()
		g.handles = append(g.handles, handle)
		g.servers = append(g.servers, startGateway(t, handle, change))
	}
	synctest.Wait() // until each has its copy
	return g
}

func startGateway(t *testing.T, s store.Shared, change func(*authorize.Config)) *authorize.Server {
	copied := replica.New(s, replica.Config{
		Mirrored: authorize.MirroredKinds, Cached: authorize.CachedKinds, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); copied.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return servertest.New(t, func(c *authorize.Config) {
		servertest.Refreshing(c)
		if change != nil {
			change(c)
		}
		c.Store, c.Durable = copied, copied
	})
}

// roundTrips returns how many the gateways make for what is done.
func (g *gateways) roundTrips(do func()) int {
	sum := func() (n int) {
		for _, handle := range g.handles {
			n += handle.RoundTrips()
		}
		return n
	}
	before := sum()
	do()
	return sum() - before
}

package authorize_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
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
	kinds := slices.Concat(store.MirroredKinds, store.CachedKinds)
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
		Mirrored: store.MirroredKinds, Cached: store.CachedKinds, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); copied.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.Refreshing(c)
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

func withoutGrace(c *authorize.Config) { everything(c); c.RefreshTokenGrace = -1 }

// Of 50 uses at once, at three gateways, one succeeds.
func TestGatewaysRace(t *testing.T) {
	t.Parallel()
	for _, tt := range requests {
		if !tt.once {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, withoutGrace)
				b := authorizetest.NewBrowser(t, g)
				request := tt.prepare(b, nil)
				var won atomic.Int64
				var all sync.WaitGroup
				for range 50 {
					other := authorizetest.NewBrowser(t, g)
					other.Cookies = maps.Clone(b.Cookies)
					all.Go(func() {
						if tt.good(other.Send(request())) {
							won.Add(1)
						}
					})
				}
				if all.Wait(); won.Load() != 1 {
					t.Errorf("%d of 50 succeeded", won.Load())
				}
			})
		})
	}
}

// Reuse of a code or a refresh token at one gateway ends the grant at all.
func TestReuseEndsGrantAtAllGateways(t *testing.T) {
	t.Parallel()
	for name, reuse := range map[string]func(b *authorizetest.Browser, code, refresh string){
		"of the code":          func(b *authorizetest.Browser, code, _ string) { b.RequestTokens(authorizetest.CodeForm(code, nil)) },
		"of the refresh token": func(b *authorizetest.Browser, _, refresh string) { b.Refresh(refresh, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, withoutGrace)
				b := authorizetest.NewBrowser(t, g)
				code := b.Code(authorizetest.OfflineAccess(nil))
				first := b.RequestTokens(authorizetest.CodeForm(code, nil))
				second := b.Refresh(first.Refresh, nil)
				if !b.TokenWorks(first.AccessToken) || !b.TokenWorks(second.AccessToken) {
					t.Fatal("nothing was given")
				}
				reuse(authorizetest.NewBrowser(t, g), code, first.Refresh)
				synctest.Wait()
				for range g.servers {
					authorizetest.CheckDead(b, second.Refresh, first.AccessToken, second.AccessToken)
				}
			})
		})
	}
}

// What each flow asks of a store that gateways share, as docs/evidence/replicas.md says it.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/evidence/replicas.md")
	authorizetest.NoError(t, err)
	check := func(t *testing.T, name string, trips int) {
		if row := fmt.Sprintf("| %s | %d |", name, trips); !strings.Contains(string(text), row) {
			t.Errorf("docs/evidence/replicas.md does not have the row\n%s", row)
		}
	}
	for _, tt := range requests {
		if tt.row == "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 1, everything)
				b := authorizetest.NewBrowser(t, g)
				request := tt.prepare(b, nil)
				check(t, tt.row, g.roundTrips(func() { b.Send(request()) }))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 1, everything)
		b := authorizetest.NewBrowser(t, g)
		asked := accessToken(b, b.Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken)
		check(t, "what the guard asks of an access token", g.roundTrips(guarding(t, g.servers[0], asked)))
	})
}

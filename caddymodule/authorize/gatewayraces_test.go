package authorize_test

import (
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

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
				b := servertest.NewBrowser(t, g)
				request := tt.prepare(b, nil)
				var won atomic.Int64
				var all sync.WaitGroup
				for range 50 {
					other := servertest.NewBrowser(t, g)
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
	for name, reuse := range map[string]func(b *servertest.Browser, code, refresh string){
		"of the code":          func(b *servertest.Browser, code, _ string) { b.RequestTokens(servertest.CodeForm(code, nil)) },
		"of the refresh token": func(b *servertest.Browser, _, refresh string) { b.Refresh(refresh, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, withoutGrace)
				b := servertest.NewBrowser(t, g)
				code := b.Code(servertest.OfflineAccess(nil))
				first := b.RequestTokens(servertest.CodeForm(code, nil))
				second := b.Refresh(first.Refresh, nil)
				if !b.TokenWorks(first.AccessToken) || !b.TokenWorks(second.AccessToken) {
					t.Fatal("nothing was given")
				}
				reuse(servertest.NewBrowser(t, g), code, first.Refresh)
				synctest.Wait()
				for range g.servers {
					servertest.CheckDead(b, second.Refresh, first.AccessToken, second.AccessToken)
				}
			})
		})
	}
}

package authorize_test

import (
	"maps"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// gatewayRaces are things that can be used once: prepare makes one, and returns what uses it
// and says whether that succeeded.
var gatewayRaces = map[string]func(*testing.T, *servertest.Browser, *gateways) func(*servertest.Browser) bool{
	"a code": func(_ *testing.T, b *servertest.Browser, _ *gateways) func(*servertest.Browser) bool {
		code := b.Code(servertest.OfflineAccess(nil))
		return func(b *servertest.Browser) bool {
			return b.RequestTokens(servertest.CodeForm(code, nil)).AccessToken != ""
		}
	},
	"a refresh token": func(_ *testing.T, b *servertest.Browser, _ *gateways) func(*servertest.Browser) bool {
		refresh := b.Tokens(servertest.OfflineAccess(nil)).Refresh
		return func(b *servertest.Browser) bool { return b.Refresh(refresh, nil).AccessToken != "" }
	},
	"a client assertion": func(t *testing.T, _ *servertest.Browser, _ *gateways) func(*servertest.Browser) bool {
		form := servertest.AssertionForm(servertest.Assertion(t, jose.ES256, nil, nil), nil)
		return func(b *servertest.Browser) bool { return b.RequestTokens(form).AccessToken != "" }
	},
	"a pushed request of a public client": func(_ *testing.T, b *servertest.Browser, _ *gateways) func(*servertest.Browser) bool {
		b.Answer(servertest.Request(nil))
		_, answer := servertest.Push(b, servertest.Request(nil))
		return func(b *servertest.Browser) bool {
			return leadsTo("code=")(b.Authorize(servertest.Pushed(answer.RequestURI)))
		}
	},
	"a pushed request of a confidential client": func(_ *testing.T, b *servertest.Browser, _ *gateways) func(*servertest.Browser) bool {
		b.Answer(servertest.Request(nil))
		_, answer := servertest.Push(b, servertest.KnownPush(nil))
		q := url.Values{"client_id": {"confidential"}, "request_uri": {answer.RequestURI}}
		return func(b *servertest.Browser) bool { return leadsTo("code=")(b.Authorize(q)) }
	},
	"a launch": func(t *testing.T, b *servertest.Browser, g *gateways) func(*servertest.Browser) bool {
		b.Answer(servertest.Request(nil))
		handle := servertest.RegisteredLaunch(t, &authorize.Config{Store: g.handles[0]}, func(l *launch.Registered) { l.ClientID = "launched" })
		q := servertest.Request(url.Values{"client_id": {"launched"}, "scope": {"launch openid patient/*.rs"}, "launch": {handle}})
		return func(b *servertest.Browser) bool { return leadsTo("code=")(b.Authorize(q)) }
	},
}

func raceConfig(c *authorize.Config) {
	roundTripConfig(c)
	c.RefreshTokenGrace = -1
	c.Records = new(servertest.FHIRServer)
	c.Clients = append(c.Clients, client.Client{
		ID: "launched", PKCE: client.PKCEOptional, RedirectURIs: []string{servertest.Callback}, Scopes: []string{"launch", "patient/*.rs"},
	})
}

// Of 50 uses at once, at three gateways, one succeeds.
func TestGatewaysRace(t *testing.T) {
	t.Parallel()
	for name, prepare := range gatewayRaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, raceConfig)
				b := servertest.NewBrowser(t, g)
				use := prepare(t, b, g)
				var won atomic.Int64
				var all sync.WaitGroup
				for range 50 {
					other := servertest.NewBrowser(t, g)
					other.Cookies = maps.Clone(b.Cookies)
					all.Go(func() {
						if use(other) {
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
				g := newGateways(t, 3, raceConfig)
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

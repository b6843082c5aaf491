package authorize_test

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// late is a store whose follower is told what there is, and then nothing more.
type late struct{ store.Shared }

func (l late) Follow(ctx context.Context, tell func(store.Update)) error {
	ctx, stop := context.WithCancel(ctx)
	return l.Shared.Follow(ctx, func(u store.Update) {
		if u.Whole {
			tell(u)
			return
		}
		<-ctx.Done()
		stop()
	})
}

// offClock is a store whose clock a gateway reads a little wrong.
type offClock struct {
	store.Shared
	by time.Duration
}

func (c offClock) Now() time.Time { return c.Shared.Now().Add(c.by) }

// endingsElsewhere are what the first gateway does to the grants of alice to app.
var endingsElsewhere = map[string]func(*testing.T, *gateways, authorizetest.TokenResponse){
	"a refresh token is revoked": func(t *testing.T, g *gateways, given authorizetest.TokenResponse) {
		authorizetest.NewBrowser(t, g.servers[0]).Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {given.Refresh}})
	},
	"the person signs out": func(t *testing.T, g *gateways, _ authorizetest.TokenResponse) {
		if n, err := g.servers[0].EndSessions(t.Context(), "alice"); n != 1 || err != nil {
			t.Error(n, err)
		}
	},
	"all grants of the person end": func(t *testing.T, g *gateways, _ authorizetest.TokenResponse) {
		if _, err := g.servers[0].RevokeGrants(t.Context(), "alice", ""); err != nil {
			t.Error(err)
		}
	},
	"all grants to the client end": func(t *testing.T, g *gateways, _ authorizetest.TokenResponse) {
		if _, err := g.servers[0].RevokeGrants(t.Context(), "", "app"); err != nil {
			t.Error(err)
		}
	},
	"all grants to the client are to end, and the gateway dies over it": func(t *testing.T, g *gateways, _ authorizetest.TokenResponse) {
		r := revocation.New(g.handles[0], g.handles[0], slog.New(slog.DiscardHandler))
		authorizetest.Equal(t, r.CutOff(t.Context(), revocation.RareCutoff, revocation.ClientCutoff("app")), nil)
	},
}

// A gateway that has not yet heard of an ending at another gives nothing that was void.
func TestLateGatewayGivesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range endingsElsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 1, nil)
				behind := startGateway(t, late{g.shared.Gateway()}, nil)
				synctest.Wait()
				b := authorizetest.NewBrowser(t, g)
				given := b.Tokens(url.Values{"scope": {"openid online_access"}})
				code := b.CodeOfSession(url.Values{"scope": {"openid online_access"}})
				end(t, g, given)
				b.Server = behind
				authorizetest.Equal(t, b.Refresh(given.Refresh, nil).AccessToken, "", "a refresh token was accepted")
				if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.AccessToken != "" && name != "a refresh token is revoked" {
					t.Error("a code was accepted")
				}
				if again := authorizetest.NewBrowser(t, behind).Tokens(nil); !authorizetest.NewBrowser(t, g).TokenWorks(again.AccessToken) {
					t.Error("a token is void that was given afterwards")
				}
			})
		})
	}
}

// Once they have heard of it, no gateway accepts an access token.
func TestEndingReachesAllGateways(t *testing.T) {
	t.Parallel()
	for name, end := range endingsElsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, nil)
				b := authorizetest.NewBrowser(t, g)
				given := b.Tokens(url.Values{"scope": {"openid online_access"}})
				for range g.servers {
					if !b.TokenWorks(given.AccessToken) {
						t.Fatal("a gateway does not accept a good token")
					}
				}
				end(t, g, given)
				synctest.Wait()
				for range g.servers {
					authorizetest.CheckDead(b, given.Refresh, given.AccessToken)
				}
				again := authorizetest.NewBrowser(t, g).Tokens(url.Values{"scope": {"openid online_access"}})
				for range g.servers {
					if !b.TokenWorks(again.AccessToken) {
						t.Error("what was given afterwards is void")
					}
				}
			})
		})
	}
}

// Gateways that read the store's clock a second early and late agree on what a cutoff voids.
func TestGatewaysReadClockDifferently(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{900 * time.Millisecond, -900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateways(t, 0, nil)
			gives, ends := startGateway(t, offClock{g.shared.Gateway(), by}, nil), startGateway(t, offClock{g.shared.Gateway(), -by}, nil)
			synctest.Wait()
			b := authorizetest.NewBrowser(t, gives)
			before := b.Tokens(authorizetest.OfflineAccess(nil))
			if _, err := ends.RevokeGrants(t.Context(), "alice", ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			authorizetest.CheckDead(b, before.Refresh, before.AccessToken)
			for _, s := range []*authorize.Server{gives, ends} {
				again := authorizetest.NewBrowser(t, s)
				after := again.Tokens(authorizetest.OfflineAccess(nil))
				synctest.Wait()
				for _, again.Server = range []*authorize.Server{gives, ends} {
					if !again.TokenWorks(after.AccessToken) {
						t.Errorf("clocks off by %v: a token is void that was given after the cutoff", by)
					}
				}
				if again.Refresh(after.Refresh, nil).AccessToken == "" {
					t.Errorf("clocks off by %v: a refresh token is void that was given after the cutoff", by)
				}
			}
		})
	}
}

// A gateway whose own clock is ten minutes ahead punishes no client: the store's clock counts.
func TestGatewayClockIsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 3, nil)
		b := authorizetest.NewBrowser(t, g)
		given := b.Tokens(authorizetest.OfflineAccess(nil))
		lost := b.Refresh(given.Refresh, nil)
		time.Sleep(10 * time.Minute) // what a gateway sees whose clock is ahead
		g.shared.SetSkew(-10 * time.Minute)
		if got := b.Refresh(given.Refresh, nil); got.Refresh != lost.Refresh {
			t.Errorf("a client that lost an answer gets %+v", got)
		}
		if _, err := g.servers[0].RevokeGrants(t.Context(), "", "app"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		authorizetest.CheckDead(b, lost.Refresh, lost.AccessToken)
		if again := authorizetest.TokensOfSession(b); !b.TokenWorks(again.AccessToken) {
			t.Error("a token is void that was given after the cutoff")
		}
	})
}

// While gateways get another configuration one after the other, those that know a new
// password let nobody in by the old one, and the others end nothing of who signed in by the new.
func TestGatewaysAmidAChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 0, nil)
		before := startGateway(t, g.shared.Gateway(), nil)
		after := startGateway(t, g.shared.Gateway(), func(c *authorize.Config) { c.Users[0].PasswordHash = "new" })
		synctest.Wait()

		b := authorizetest.NewBrowser(t, before)
		old := b.Tokens(authorizetest.OfflineAccess(nil))
		b.Server = after
		if b.SignedIn() || b.TokenWorks(old.AccessToken) {
			t.Error("what was given by the old password counts")
		}

		b = authorizetest.NewBrowser(t, after)
		r := b.SignIn(authorizetest.Request(authorizetest.OfflineAccess(nil)), "alice", "new")
		form := authorizetest.CodeForm(authorizetest.Location(t, r).Query().Get("code"), nil)
		b.Server = before
		if got := b.RequestTokens(form); got.AccessToken != "" || b.SignedIn() {
			t.Errorf("a gateway that does not know the new password: %+v", got)
		}
		b.Server = after
		given := b.RequestTokens(form)
		b.Server = before
		if got := b.Refresh(given.Refresh, nil); got.AccessToken != "" || b.TokenWorks(given.AccessToken) {
			t.Errorf("a gateway that does not know the new password: %+v", got)
		}
		b.Server = after
		if got := b.Refresh(given.Refresh, nil); got.AccessToken == "" || !b.TokenWorks(given.AccessToken) || !b.SignedIn() {
			t.Errorf("once more at a gateway that does: %+v", got)
		}
	})
}

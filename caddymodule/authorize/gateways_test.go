package authorize_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemirror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// gateways are servers with the same configuration and a shared store. Each server has a separate copy of the revocations.
// Requests are distributed round-robin.
type gateways struct {
	shared  *storetest.SharedMemory
	handles []*storetest.Gateway
	servers []*authorize.Server
	turn    atomic.Int64
}

func (g *gateways) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.servers[int(g.turn.Add(1))%len(g.servers)].ServeHTTP(w, r)
}

// newGateways starts n gateways in a synctest bubble.
func newGateways(t *testing.T, n int, change func(*authorize.Config)) *gateways {
	t.Helper()
	kinds := slices.Concat(store.MirroredKinds, store.CachedKinds)
	g := &gateways{shared: storetest.NewSharedMemory(kinds...)}
	for range n {
		handle := g.shared.Gateway()
		g.handles = append(g.handles, handle)
		g.servers = append(g.servers, startGateway(t, handle, change))
	}
	synctest.Wait() // waits until each copy of the revocations is loaded
	return g
}

func startGateway(t *testing.T, s store.SharedStore, change func(*authorize.Config)) *authorize.Server {
	copied := storemirror.New(s, storemirror.Config{
		MirroredKinds: store.MirroredKinds, CachedKinds: store.CachedKinds, Logger: slog.New(slog.DiscardHandler),
	})
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); copied.Run(ctx) }()
	t.Cleanup(func() { end(); <-done })
	return authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		if change != nil {
			change(c)
		}
		c.Store, c.DurableStore = copied, copied
	})
}

// roundTrips returns the number of store round trips that the gateways make during do.
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

func withoutGrace(c *authorize.Config) { withAllFeatures(c); c.RefreshTokenGrace = -1 }

// If a single-use value is used 50 times concurrently at three gateways, exactly one use succeeds.
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

// Reuse of a code or refresh token at one gateway revokes the grant at all gateways.
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
				code := b.Code(authorizetest.WithOfflineAccess(nil))
				first := b.RequestTokens(authorizetest.CodeForm(code, nil))
				second := b.Refresh(first.RefreshToken, nil)
				if !b.IsTokenValid(first.AccessToken) || !b.IsTokenValid(second.AccessToken) {
					t.Fatal("nothing was given")
				}
				reuse(authorizetest.NewBrowser(t, g), code, first.RefreshToken)
				synctest.Wait()
				for range g.servers {
					authorizetest.CheckTokensInvalid(b, second.RefreshToken, first.AccessToken, second.AccessToken)
				}
			})
		})
	}
}

// The store round trips of each flow match docs/evidence/replicas.md.
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
				g := newGateways(t, 1, withAllFeatures)
				b := authorizetest.NewBrowser(t, g)
				request := tt.prepare(b, nil)
				check(t, tt.row, g.roundTrips(func() { b.Send(request()) }))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 1, withAllFeatures)
		b := authorizetest.NewBrowser(t, g)
		token := accessToken(b, b.Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken)
		check(t, "what the guard asks of an access token", g.roundTrips(guardCheck(t, g.servers[0], token)))
	})
}

// laggingStore is a store that sends its follower the initial state and no updates.
type laggingStore struct{ store.SharedStore }

func (l laggingStore) Subscribe(ctx context.Context, tell func(store.Update)) error {
	ctx, stop := context.WithCancel(ctx)
	return l.SharedStore.Subscribe(ctx, func(u store.Update) {
		if u.IsComplete {
			tell(u)
			return
		}
		<-ctx.Done()
		stop()
	})
}

// skewedStore is a store with a skewed clock.
type skewedStore struct {
	store.SharedStore
	by time.Duration
}

func (c skewedStore) Now() time.Time { return c.SharedStore.Now().Add(c.by) }

// endingsElsewhere contains ways to revoke alice's grants to app at the first gateway.
var endingsElsewhere = map[string]func(*testing.T, *gateways, authorizetest.TokenResponse){
	"a refresh token is revoked": func(t *testing.T, g *gateways, tokens authorizetest.TokenResponse) {
		authorizetest.NewBrowser(t, g.servers[0]).Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {tokens.RefreshToken}})
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
		authorizetest.Equal(t, r.CutOff(t.Context(), revocation.RareCutoffMarker, revocation.ClientCutoffKey("app")), nil)
	},
}

// A gateway that has not received a revocation yet issues nothing for the revoked grants.
func TestLaggingGatewayIssuesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range endingsElsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 1, nil)
				behind := startGateway(t, laggingStore{g.shared.Gateway()}, nil)
				synctest.Wait()
				b := authorizetest.NewBrowser(t, g)
				tokens := b.Tokens(url.Values{"scope": {"openid online_access"}})
				code := b.CodeWithSession(url.Values{"scope": {"openid online_access"}})
				end(t, g, tokens)
				b.Server = behind
				authorizetest.Equal(t, b.Refresh(tokens.RefreshToken, nil).AccessToken, "", "a refresh token was accepted")
				if got := b.RequestTokens(authorizetest.CodeForm(code, nil)); got.AccessToken != "" && name != "a refresh token is revoked" {
					t.Error("a code was accepted")
				}
				if again := authorizetest.NewBrowser(t, behind).Tokens(nil); !authorizetest.NewBrowser(t, g).IsTokenValid(again.AccessToken) {
					t.Error("a token issued afterwards is invalid")
				}
			})
		})
	}
}

// After synchronization, no gateway accepts the revoked access tokens.
func TestEndingReachesAllGateways(t *testing.T) {
	t.Parallel()
	for name, end := range endingsElsewhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGateways(t, 3, nil)
				b := authorizetest.NewBrowser(t, g)
				tokens := b.Tokens(url.Values{"scope": {"openid online_access"}})
				for range g.servers {
					if !b.IsTokenValid(tokens.AccessToken) {
						t.Fatal("a gateway does not accept a good token")
					}
				}
				end(t, g, tokens)
				synctest.Wait()
				for range g.servers {
					authorizetest.CheckTokensInvalid(b, tokens.RefreshToken, tokens.AccessToken)
				}
				again := authorizetest.NewBrowser(t, g).Tokens(url.Values{"scope": {"openid online_access"}})
				for range g.servers {
					if !b.IsTokenValid(again.AccessToken) {
						t.Error("tokens issued afterwards are invalid")
					}
				}
			})
		})
	}
}

// Gateways agree on the effect of a cutoff although their store clocks differ by almost two seconds.
func TestGatewaysWithClockSkew(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{900 * time.Millisecond, -900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			g := newGateways(t, 0, nil)
			gives, ends := startGateway(t, skewedStore{g.shared.Gateway(), by}, nil), startGateway(t, skewedStore{g.shared.Gateway(), -by}, nil)
			synctest.Wait()
			b := authorizetest.NewBrowser(t, gives)
			before := b.Tokens(authorizetest.WithOfflineAccess(nil))
			if _, err := ends.RevokeGrants(t.Context(), "alice", ""); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			authorizetest.CheckTokensInvalid(b, before.RefreshToken, before.AccessToken)
			for _, s := range []*authorize.Server{gives, ends} {
				again := authorizetest.NewBrowser(t, s)
				after := again.Tokens(authorizetest.WithOfflineAccess(nil))
				synctest.Wait()
				for _, again.Server = range []*authorize.Server{gives, ends} {
					if !again.IsTokenValid(after.AccessToken) {
						t.Errorf("clocks off by %v: a token is void that was given after the cutoff", by)
					}
				}
				if again.Refresh(after.RefreshToken, nil).AccessToken == "" {
					t.Errorf("clocks off by %v: a refresh token is void that was given after the cutoff", by)
				}
			}
		})
	}
}

// A gateway with a clock that is ten minutes ahead affects no client, because the store's clock is used.
func TestGatewayClockIsAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 3, nil)
		b := authorizetest.NewBrowser(t, g)
		tokens := b.Tokens(authorizetest.WithOfflineAccess(nil))
		lost := b.Refresh(tokens.RefreshToken, nil)
		time.Sleep(10 * time.Minute) // simulates a gateway clock that is ahead
		g.shared.SetSkew(-10 * time.Minute)
		if got := b.Refresh(tokens.RefreshToken, nil); got.RefreshToken != lost.RefreshToken {
			t.Errorf("a client that lost an answer gets %+v", got)
		}
		if _, err := g.servers[0].RevokeGrants(t.Context(), "", "app"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		authorizetest.CheckTokensInvalid(b, lost.RefreshToken, lost.AccessToken)
		if again := authorizetest.TokensWithSession(b); !b.IsTokenValid(again.AccessToken) {
			t.Error("a token issued after the cutoff is invalid")
		}
	})
}

// During a rolling configuration change, gateways with the new password reject the old one, and
// gateways with the old password do not revoke grants made with the new one.
func TestRollingConfigurationChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGateways(t, 0, nil)
		before := startGateway(t, g.shared.Gateway(), nil)
		after := startGateway(t, g.shared.Gateway(), func(c *authorize.Config) { c.Users[0].PasswordHash = "new" })
		synctest.Wait()

		b := authorizetest.NewBrowser(t, before)
		old := b.Tokens(authorizetest.WithOfflineAccess(nil))
		b.Server = after
		if b.HasSession() || b.IsTokenValid(old.AccessToken) {
			t.Error("tokens issued for the old password are valid")
		}

		b = authorizetest.NewBrowser(t, after)
		r := b.SignIn(authorizetest.Request(authorizetest.WithOfflineAccess(nil)), "alice", "new")
		form := authorizetest.CodeForm(authorizetest.Location(t, r).Query().Get("code"), nil)
		b.Server = before
		if got := b.RequestTokens(form); got.AccessToken != "" || b.HasSession() {
			t.Errorf("a gateway that does not know the new password: %+v", got)
		}
		b.Server = after
		tokens := b.RequestTokens(form)
		b.Server = before
		if got := b.Refresh(tokens.RefreshToken, nil); got.AccessToken != "" || b.IsTokenValid(tokens.AccessToken) {
			t.Errorf("a gateway that does not know the new password: %+v", got)
		}
		b.Server = after
		if got := b.Refresh(tokens.RefreshToken, nil); got.AccessToken == "" || !b.IsTokenValid(tokens.AccessToken) || !b.HasSession() {
			t.Errorf("once more at a gateway that does: %+v", got)
		}
	})
}

// accessToken returns the guard's view of a token.
func accessToken(b *authorizetest.Browser, raw string) tokenclaim.AccessToken {
	claims := b.Claims(raw)
	text := func(name string) string { value, _ := claims[name].(string); return value }
	return tokenclaim.AccessToken{
		ID: text("jti"), Subject: text("sub"), ClientID: text("client_id"), Scope: text("scope"), Session: text("sid"),
		CredentialHash: text("credential_hash"), Provider: text("idp"), ProviderAccount: text("idp_account"), ACR: text("acr"),
	}
}

// Checking a cached token takes no store round trip, whether by the guard, introspection or userinfo.
func TestGuardNeedsNoRoundTrip(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	r, gateway := authorizetest.NewReplica(t)
	const strongSecret = "7d4be3ce86cd4f9ab0e1b2c3d4e5f607"
	server := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.Clients = append(c.Clients, client.Client{ID: "fhir-server", Secret: strongSecret, IntrospectAll: true})
		c.Store, c.DurableStore = r, r
		c.IdentityProviders = []people.IdentityProvider{authorizetest.HospitalProvider(p)}
	})
	b := authorizetest.NewBrowser(t, server)
	service := b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}})
	tokens := map[string]string{
		"a local user":           b.Tokens(url.Values{"scope": {"openid user/*.rs"}}).AccessToken,
		"one of a session":       authorizetest.NewBrowser(t, server).Tokens(url.Values{"scope": {"openid online_access"}}).AccessToken,
		"a service":              authorizetest.Decode[authorizetest.TokenResponse](t, service).AccessToken,
		"a person of a provider": authorizetest.FederatedTokens(authorizetest.NewBrowser(t, server), nil).AccessToken,
	}
	for name, raw := range tokens {
		introspection := authorizetest.PostRequest("/oauth2/introspect", url.Values{"token": {raw}})
		introspection.SetBasicAuth("fhir-server", strongSecret)
		userinfo := httptest.NewRequest(http.MethodGet, "/oauth2/userinfo", nil)
		userinfo.Header.Set("Authorization", "Bearer "+raw)
		checkQuiet(t, gateway, "the guard, for "+name, guardCheck(t, server, accessToken(b, raw)))
		checkQuiet(t, gateway, "introspection of "+name, func() { b.Send(introspection.Clone(t.Context())) })
		checkQuiet(t, gateway, "userinfo of "+name, func() { b.Send(userinfo.Clone(t.Context())) })
	}
}

// guardCheck returns a function that executes the guard's checks of a token. The token must be valid.
func guardCheck(t *testing.T, server *authorize.Server, token tokenclaim.AccessToken) func() {
	return func() {
		revoked, err1 := server.IsRevoked(t.Context(), token.ID)
		holder, err2 := server.Holder(t.Context(), token)
		if revoked || holder == nil || err1 != nil || err2 != nil {
			t.Errorf("revoked %t, holder %v: %v, %v", revoked, holder, err1, err2)
		}
	}
}

func checkQuiet(t *testing.T, g *storetest.Gateway, what string, do func()) {
	t.Helper()
	if before := g.RoundTrips(); !authorizetest.TakesNoRoundTrip(g, do) {
		t.Errorf("%s takes round trips: %d so far", what, g.RoundTrips()-before)
	}
}

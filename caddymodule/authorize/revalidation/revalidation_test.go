package revalidation_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func cliniciansOnly(p *people.IdentityProvider, _ *authorize.Config) {
	p.Allow = []people.AllowRule{{Claim: "group", Value: "clinicians"}}
}

// A person who was removed at the provider, or lost the required group, loses access within the
// interval, whether the check is made by a sweep, a refresh or a page.
func TestDenialEndsSignIn(t *testing.T) {
	t.Parallel()
	for why, claims := range map[string]map[string]any{
		"gone": nil, "without the group": {"groups": []any{"visitors"}},
	} {
		for _, lasting := range []string{"offline_access", "online_access"} {
			for how, ask := range map[string]func(*authorizetest.Browser, authorizetest.TokenResponse){
				"by the sweep": func(*authorizetest.Browser, authorizetest.TokenResponse) { waitForSweep(interval) },
				"by an app": func(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
					time.Sleep(11 * time.Second)
					b.Refresh(tokens.RefreshToken, nil)
				},
			} {
				t.Run(why+" "+lasting+" "+how, func(t *testing.T) {
					t.Parallel()
					inHospital(t, 2, cliniciansOnly, func(h *hospital) {
						b, tokens := h.signIn(lasting)
						h.becomes(claims)
						ask(b, tokens)
						if how == "by the sweep" && b.IsTokenValid(tokens.AccessToken) {
							t.Error("the access token is still valid")
						}
						h.wantInvalid(b, tokens)
						if remaining := h.keys("upstream"); len(remaining) > 0 {
							t.Errorf("remaining records: %q", remaining)
						}
					})
				})
			}
		}
	}
}

// Access tokens of all apps are revoked, regardless of their number.
func TestDenialEndsGrantsOfManyApps(t *testing.T) {
	t.Parallel()
	const appCount = 100
	id := func(i int) url.Values { return url.Values{"client_id": {"app-" + strconv.Itoa(i)}} }
	inHospital(t, -1, func(_ *people.IdentityProvider, c *authorize.Config) {
		for i := range appCount {
			app := c.Clients[0]
			app.ID = id(i).Get("client_id")
			c.Clients = append(c.Clients, app)
		}
	}, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		for i := range appCount {
			code := b.CodeWithSession(authorizetest.WithOfflineAccess(id(i)))
			if got := b.RequestTokens(authorizetest.CodeForm(code, id(i))); got.RefreshToken == "" {
				t.Fatalf("%+v", got)
			}
		}
		if _, err := h.servers[0].RevokeGrants(t.Context(), b.Claims(tokens.AccessToken)["sub"].(string), "app-0"); err != nil {
			t.Fatal(err)
		}
		h.becomes(nil)
		time.Sleep(interval)
		if b.HasSession() || b.IsTokenValid(tokens.AccessToken) {
			t.Error("session or access token is still valid")
		}
	})
}

// A grant with revalidation is rejected if its sign-in is gone, because no check could deny it any more.
func TestGrantWithoutSignInEnds(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		for _, key := range h.keys("upstream") {
			if err := h.stored.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		if r := b.Post("/oauth2/token", authorizetest.RefreshForm(tokens.RefreshToken, nil)); r.StatusCode != http.StatusBadRequest {
			t.Errorf("%d", r.StatusCode)
		}
	})
}

// A sign-in ends if the provider's claims now result in another sub.
func TestAnotherSubEndsSignIn(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, func(p *people.IdentityProvider, _ *authorize.Config) { p.Sub = "employee" }, func(h *hospital) {
		h.becomes(map[string]any{"employee": "e1"})
		b, tokens := h.signIn("offline_access")
		h.becomes(map[string]any{"employee": "e2"})
		time.Sleep(interval)
		h.wantInvalid(b, tokens)
	})
}

// A page triggers a check when the last confirmation is older than the interval. No sweep runs in this test.
func TestSessionTriggersCheck(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.becomes(nil)
		time.Sleep(interval - time.Second)
		if !b.HasSession() || len(h.sentRefreshTokens()) > 0 {
			t.Errorf("%d requests within the interval, or signed out", len(h.sentRefreshTokens()))
		}
		time.Sleep(time.Second)
		h.wantInvalid(b, tokens)
	})
}

// Apps receive the claims of the provider's latest response.
func TestConfirmationUpdatesClaims(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, cliniciansOnly, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.becomes(map[string]any{"groups": []any{"clinicians", "surgeons"}})
		waitForSweep(interval)
		h.wantWorks(b, tokens)
		authorizetest.WantText(t, authorizetest.Body(t, b.Userinfo(tokens.AccessToken)), "surgeons")
	})
}

// An outage within the limit has no effect. A longer outage pauses access but revokes nothing.
func TestOutage(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		for _, fault := range []providertest.Fault{
			providertest.Status(http.StatusBadGateway), providertest.ErrorResponse(http.StatusUnauthorized, "invalid_client"),
			providertest.NeverRespond, providertest.SendHTML, providertest.ErrorResponse(http.StatusTooManyRequests, "access_denied"),
		} {
			h.SetFault(providertest.Token, fault)
			waitForSweep(time.Hour)
			tokens = h.wantWorks(b, tokens)
		}
		waitForSweep(outage - 5*time.Hour)
		r := b.Post("/oauth2/token", authorizetest.RefreshForm(tokens.RefreshToken, nil))
		if body := authorizetest.Body(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" || !strings.Contains(body, "temporarily_unavailable") {
			t.Errorf("%d %s", r.StatusCode, body)
		}
		if b.HasSession() {
			t.Error("the session is still valid")
		}
		h.SetFault(providertest.Token, nil)
		waitForSweep(interval)
		h.wantWorks(b, tokens)
	})
}

// Requests with access tokens cause no checks and do not wait, regardless of the age of the last confirmation.
func TestAccessTokensTriggerNoCheck(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		time.Sleep(2 * interval)
		h.delay = time.Second
		start, before := time.Now(), len(h.Requests(providertest.Token))
		for range 1000 {
			if !b.IsTokenValid(tokens.AccessToken) {
				t.Fatal("the access token ended")
			}
		}
		if waited := time.Since(start); waited > 0 || len(h.Requests(providertest.Token)) > before {
			t.Errorf("waited %v, %d requests", waited, len(h.Requests(providertest.Token))-before)
		}
	})
}

// Requests do not repeatedly wait for an unresponsive provider.
func TestSilentProviderDelaysFew(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		time.Sleep(10 * time.Second)
		h.SetFault(providertest.Token, providertest.NeverRespond)
		start := time.Now()
		for range 20 {
			tokens = h.wantWorks(b, tokens)
		}
		if waited := time.Since(start); waited > 40*time.Second {
			t.Errorf("20 refreshes took %v", waited)
		}
	})
}

// Despite concurrent checks at gateways with a shared store, no refresh token is sent twice, and no sign-in is lost.
func TestRefreshTokensAreSentOnce(t *testing.T) {
	t.Parallel()
	inHospital(t, 3, nil, func(h *hospital) {
		h.delay = 2 * time.Second
		type app struct {
			*authorizetest.Browser
			authorizetest.TokenResponse
		}
		var apps []app
		first, tokens := h.signIn("offline_access")
		for i := range 12 {
			b := authorizetest.NewBrowser(t, h.servers[i%3])
			b.Cookies = maps.Clone(first.Cookies)
			apps = append(apps, app{b, tokens})
			tokens = first.RequestTokens(authorizetest.CodeForm(first.CodeWithSession(authorizetest.WithOfflineAccess(nil)), nil))
		}
		for range 10 {
			time.Sleep(interval * 9 / 10)
			var all sync.WaitGroup
			for i := range apps {
				all.Go(func() { apps[i].TokenResponse = apps[i].Browser.Refresh(apps[i].TokenResponse.RefreshToken, nil) })
			}
			all.Wait()
		}
		for i := range apps {
			if apps[i].AccessToken == "" {
				t.Errorf("app %d: %s %s", i, apps[i].Error, apps[i].Description)
			}
		}
		sent := h.sentRefreshTokens()
		slices.Sort(sent)
		if n := len(sent); len(slices.Compact(sent)) != n || n < 10 || n > 40 {
			t.Errorf("%d were sent, of which %d different", n, len(slices.Compact(sent)))
		}
	})
}

// A gateway that needs a confirmation waits for the result of another gateway's running check.
func TestResultOfOtherGateway(t *testing.T) {
	t.Parallel()
	inHospital(t, -2, nil, func(h *hospital) {
		b, _ := h.signIn("offline_access")
		other := authorizetest.NewBrowser(t, h.servers[1])
		other.Cookies = maps.Clone(b.Cookies)
		h.becomes(nil)
		time.Sleep(interval)
		h.delay = 2 * time.Second
		var both sync.WaitGroup
		for _, b := range []*authorizetest.Browser{b, other} {
			both.Go(func() {
				if b.HasSession() {
					t.Error("the session is still valid")
				}
			})
		}
		both.Wait()
		authorizetest.Equal(t, len(h.sentRefreshTokens()), 1)
	})
}

// modifiesSignIn reports whether a call modifies a stored sign-in.
func modifiesSignIn(c *store.Call) bool {
	return c.Op == store.Swap && strings.HasPrefix(c.Key, "upstream:")
}

// A rotated refresh token is stored as soon as the store permits, while the claim is valid. If it is lost nevertheless, e.g.
// because a gateway crashed, checks use the previous token, which the provider may accept or reject.
func TestResponseNotStored(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lasts       time.Duration
		keeps, goes bool
	}{
		"for some seconds":                               {15 * time.Second, false, true},
		"until the claim is over":                        {2 * time.Minute, true, true},
		"until the claim is over, and the token rotates": {2 * time.Minute, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inHospital(t, 2, nil, func(h *hospital) {
				h.Change(func(s *providertest.Settings) { s.ReuseRefreshTokens = tt.keeps })
				b, tokens := h.signIn("offline_access")
				var once sync.Once
				h.Change(func(s *providertest.Settings) {
					s.TokenResponse = func(map[string]any) { once.Do(func() { h.stored.failing(modifiesSignIn) }) }
				})
				waitForSweep(interval - 30*time.Second) // the sweep performs a check
				if len(h.sentRefreshTokens()) != 1 {
					t.Fatalf("%d requests", len(h.sentRefreshTokens()))
				}
				time.Sleep(tt.lasts)
				h.stored.failing(nil)
				waitForSweep(2 * interval)
				if tt.goes {
					h.wantWorks(b, tokens)
				} else {
					h.wantInvalid(b, tokens)
				}
			})
		})
	}
}

// If a gateway crashes or is slow after the provider has rotated the refresh token, no sign-in is lost.
func TestNextTokenIsStoredFirst(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		var once sync.Once
		h.SetFault(providertest.UserInfo, func(w http.ResponseWriter, r *http.Request) {
			once.Do(func() { h.stored.failing(modifiesSignIn) })
			providertest.NeverRespond(w, r)
		})
		waitForSweep(interval - 30*time.Second) // the sweep performs a check
		authorizetest.Equal(t, len(h.sentRefreshTokens()), 1)
		time.Sleep(2 * time.Minute) // waits until the claim has expired
		h.stored.failing(nil)
		h.SetFault(providertest.UserInfo, nil)
		waitForSweep(2 * interval)
		h.wantWorks(b, tokens)
	})
}

// If the revocation after a denial fails, access is blocked and the revocation is completed later.
func TestDenialNotStored(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		time.Sleep(11 * time.Second)
		h.becomes(nil)
		h.stored.failing(func(c *store.Call) bool {
			return strings.HasPrefix(c.Key, "cutoff:session") || strings.HasPrefix(c.Key, "revoked:")
		})
		if got := b.Refresh(tokens.RefreshToken, nil); got.Error != "invalid_grant" {
			t.Errorf("%+v", got)
		}
		h.SetFault(providertest.Token, providertest.Status(http.StatusBadGateway))
		if b.HasSession() {
			t.Error("the session is still valid")
		}
		h.stored.failing(nil)
		waitForSweep(interval / 5)
		h.wantInvalid(b, tokens)
	})
}

// People of a provider that issues no tokens for checks get no grants that outlast the session, but they keep their access
// during the session.
func TestProviderWithoutTokens(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token") }
		})
		b, tokens := h.signIn("online_access offline_access")
		authorizetest.Equal(t, tokens.Scope, "openid groups user/*.rs online_access")
		h.becomes(nil)
		waitForSweep(2 * interval)
		h.wantWorks(b, tokens)
		authorizetest.Equal(t, len(h.sentRefreshTokens()), 0)
		only := authorizetest.SelectProvider("hospital")
		only.Set("scope", "offline_access")
		authorizetest.WantError(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(only))), "invalid_scope")
	})
}

func TestOff(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, func(p *people.IdentityProvider, _ *authorize.Config) { p.Revalidate.Interval = -1 }, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.becomes(nil)
		waitForSweep(2 * interval)
		h.wantWorks(b, tokens)
		authorizetest.Equal(t, len(h.sentRefreshTokens())+len(h.keys("upstream")), 0)
		authorizetest.Equal(t, h.Requests(providertest.Authorization)[0].Form.Get("scope"), "openid profile email")
	})
}

// No refresh token of a provider is readable in the store, whether original or rotated.
func TestSealedAtRest(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		var issued []string
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { issued = append(issued, answer["refresh_token"].(string)) }
		})
		h.signIn("offline_access")
		waitForSweep(interval)
		if len(issued) != 2 || len(h.keys("upstream")) != 1 {
			t.Fatalf("%d tokens", len(issued))
		}
		for _, token := range issued {
			if h.holds(token) {
				t.Errorf("%s is stored", token)
			}
		}
	})
}

// However often the server is replaced by changes of users or clients, its sweeps revoke the access of removed people.
func TestSweepsOfServersInTurn(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{time.Second, 50 * time.Second} {
		t.Run(fmt.Sprint(each), func(t *testing.T) {
			t.Parallel()
			inHospital(t, -2, nil, func(h *hospital) {
				all := h.staff(41)
				h.admits(all[0].subject)
				for start := time.Now(); time.Since(start) < interval; {
					ctx, end := context.WithTimeout(h.t.Context(), each)
					h.servers[0].Run(ctx)
					end()
				}
				for _, m := range all[1:] {
					if m.IsTokenValid(m.AccessToken) {
						h.t.Errorf("%s: access token is still valid", m.subject)
					}
				}
			})
		})
	}
}

// A provider receives one token request and one userinfo request per person and interval, regardless of the number of gateways, and
// one request per gateway and hour for its documents.
func TestProviderRequestsOfManyPeople(t *testing.T) {
	t.Parallel()
	const people, hours = 200, 1
	const checks = people * (hours*int(time.Hour/interval) + 1) // the last one is at the end
	inHospital(t, 3, nil, func(h *hospital) {
		h.staff(people)
		before := h.requestCounts()
		waitForSweep(hours * time.Hour)
		after := h.requestCounts()
		for endpoint, limit := range map[providertest.Endpoint]int{
			providertest.Token: checks, providertest.UserInfo: checks, providertest.Discovery: 3 * hours, providertest.Keys: 3 * hours,
		} {
			got := after[endpoint] - before[endpoint]
			t.Logf("%s: %d requests, %.1f per minute", endpoint, got, float64(got)/hours/60)
			if got > limit {
				t.Errorf("%s: %d requests, want at most %d", endpoint, got, limit)
			}
		}
		authorizetest.Equal(t, before[providertest.Token], people, "token requests for sign-ins")
	})
}

// requestCounts returns the number of requests to each endpoint of the provider.
func (h *hospital) requestCounts() map[providertest.Endpoint]int {
	counts := map[providertest.Endpoint]int{}
	for _, e := range []providertest.Endpoint{providertest.Discovery, providertest.Keys, providertest.Token, providertest.UserInfo} {
		counts[e] = len(h.Requests(e))
	}
	return counts
}

// If a refresh at the provider returns the sign-in of another person, client or issuer, access ends
// immediately (OpenID Connect Core §12.2).
func TestAnotherSignInEndsAccess(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*providertest.IDToken){
		"another person": func(token *providertest.IDToken) { token.Claims["sub"] = "another" },
		"another client": providertest.WrongAudience,
		"another issuer": providertest.WrongIssuer,
	} {
		for how, ask := range map[string]func(*authorizetest.Browser, authorizetest.TokenResponse){
			"by the sweep": func(*authorizetest.Browser, authorizetest.TokenResponse) { waitForSweep(interval) },
			"by an app": func(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
				time.Sleep(11 * time.Second)
				b.Refresh(tokens.RefreshToken, nil)
			},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				inHospital(t, 2, nil, func(h *hospital) {
					b, tokens := h.signIn("offline_access")
					h.Change(func(s *providertest.Settings) { s.IDToken = change })
					ask(b, tokens)
					h.wantInvalid(b, tokens)
					if remaining := h.keys("upstream"); len(remaining) > 0 {
						t.Errorf("remaining records: %q", remaining)
					}
				})
			})
		}
	}
}

// A refresh that exceeds the granted scope is rejected without a check (RFC 6749 §6).
func TestExcessiveRefreshTriggersNoCheck(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		time.Sleep(interval)
		before := len(h.sentRefreshTokens())
		if got := b.Refresh(tokens.RefreshToken, url.Values{"scope": {"user/*.cruds"}}); got.Error != "invalid_scope" || len(h.sentRefreshTokens()) != before {
			t.Errorf("%+v, %d requests", got, len(h.sentRefreshTokens())-before)
		}
		if got := b.Refresh(tokens.RefreshToken, nil); got.AccessToken == "" {
			t.Errorf("%+v", got)
		}
	})
}

// inBoundHospital runs a test with a provider that binds refresh tokens to the person's session at the provider. introspects
// enables introspection.
func inBoundHospital(t *testing.T, introspects bool, test func(*hospital)) {
	t.Helper()
	inHospital(t, 2, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.Metadata["scopes_supported"] = []string{"openid", "profile", "email"}
			if introspects {
				s.Metadata["introspection_endpoint"] = h.Issuer + string(providertest.Introspection)
			}
		})
		test(h)
	})
}

// Background checks do not use an inactive person's refresh token, because that would prolong their session at the
// provider.
func TestBackgroundIsNoActivity(t *testing.T) {
	t.Parallel()
	for _, introspects := range []bool{true, false} {
		inBoundHospital(t, introspects, func(h *hospital) {
			b, tokens := h.signIn("online_access")
			before := len(h.Requests(providertest.Introspection))
			waitForSweep(6 * interval)
			authorizetest.Equal(t, len(h.sentRefreshTokens()), 0, "refreshed in the background")
			if got := len(h.Requests(providertest.Introspection)) > before; got != introspects {
				t.Errorf("introspected: %v, want %v", got, introspects)
			}
			h.wantWorks(b, tokens)
		})
	}
}

// After activity, one check uses the refresh token.
func TestActivityReachesProvider(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*authorizetest.Browser, *authorizetest.TokenResponse){
		"a visit": func(b *authorizetest.Browser, _ *authorizetest.TokenResponse) { b.HasSession() },
		"a refresh": func(b *authorizetest.Browser, tokens *authorizetest.TokenResponse) {
			*tokens = b.Refresh(tokens.RefreshToken, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBoundHospital(t, true, func(h *hospital) {
				b, tokens := h.signIn("online_access")
				time.Sleep(2 * time.Minute)
				act(b, &tokens)
				waitForSweep(6 * interval)
				if got := len(h.sentRefreshTokens()); got != 1 {
					t.Errorf("refreshed %d times, want once", got)
				}
			})
		})
	}
}

// An inactive person who is disabled or signed out at the provider loses access within the interval.
func TestInactivePersonEnds(t *testing.T) {
	t.Parallel()
	for _, lasting := range []string{"offline_access", "online_access"} {
		inBoundHospital(t, true, func(h *hospital) {
			b, tokens := h.signIn(lasting)
			waitForSweep(6 * interval)
			h.becomes(nil)
			waitForSweep(interval)
			if b.IsTokenValid(tokens.AccessToken) {
				t.Error("the access token is still valid")
			}
			h.wantInvalid(b, tokens)
			authorizetest.Equal(t, len(h.sentRefreshTokens()), 0, "refreshed")
		})
	}
}

// A provider that replaced a provider with the same key never receives the refresh tokens of its predecessor.
func TestReplacedProviderGetsNoToken(t *testing.T) {
	t.Parallel()
	for how, ask := range map[string]func(*hospital, *authorizetest.Browser, authorizetest.TokenResponse){
		"session": func(_ *hospital, b *authorizetest.Browser, _ authorizetest.TokenResponse) { b.HasSession() },
		"refresh": func(_ *hospital, b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
			b.Refresh(tokens.RefreshToken, nil)
		},
		"sweep": func(*hospital, *authorizetest.Browser, authorizetest.TokenResponse) { waitForSweep(interval) },
		"sweep after the session": func(h *hospital, b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
			h.endSessionOf(b, tokens)
			waitForSweep(48 * time.Hour)
		},
	} {
		for _, access := range []string{"online_access", "offline_access"} {
			t.Run(how+" "+access, func(t *testing.T) {
				t.Parallel()
				inHospital(t, -1, nil, func(h *hospital) {
					b, tokens := h.signIn(access)
					time.Sleep(interval + time.Second)
					successor := replaceProvider(h, "")
					b.Server = h.servers[0]
					if strings.HasPrefix(how, "sweep") {
						ctx, end := context.WithCancel(h.t.Context())
						var running sync.WaitGroup
						defer func() { end(); running.Wait() }()
						running.Go(func() { h.servers[0].Run(ctx) })
					}
					ask(h, b, tokens)
					for _, e := range []providertest.Endpoint{providertest.Token, providertest.Introspection, providertest.UserInfo, providertest.Revocation} {
						if sent := successor.Requests(e); len(sent) > 0 {
							t.Errorf("%s: %d requests, the first with %v", e, len(sent), sent[0].Form)
						}
					}
				})
			})
		}
	}
}

// After a change of the issuer, sub_issuer preserves the subs. Access continues for the outage
// limit, because the old refresh tokens are unusable, and then requires a sign-in.
func TestIssuerChangeKeepsSubs(t *testing.T) {
	t.Parallel()
	for _, keeps := range []bool{true, false} {
		inHospital(t, -1, nil, func(h *hospital) {
			b, tokens := h.signIn("offline_access")
			before := b.Claims(tokens.AccessToken)["sub"]
			subIssuer := ""
			if keeps {
				subIssuer = h.Issuer
			}
			h.Provider = replaceProvider(h, subIssuer)
			b.Server = h.servers[0]
			if keeps {
				tokens = h.wantWorks(b, tokens)
			}
			time.Sleep(outage)
			if got := b.Refresh(tokens.RefreshToken, nil); got.Error != "invalid_grant" || b.HasSession() {
				t.Errorf("keeps %t: the session is still valid, or %+v", keeps, got)
			}
			again, fresh := h.signIn("offline_access")
			if after := again.Claims(fresh.AccessToken)["sub"]; (after == before) != keeps {
				t.Errorf("keeps %t: %v, then %v", keeps, before, after)
			}
			h.wantWorks(again, fresh)
		})
	}
}

// replaceProvider replaces the gateways by a single gateway with the same store, another issuer for the provider hospital, and
// an optional sub_issuer.
func replaceProvider(h *hospital, subIssuer string) *providertest.Provider {
	successor := &hospital{Provider: providertest.New("https://successor.example"), t: h.t}
	successor.Change(func(s *providertest.Settings) {
		s.KeyAlgorithm, s.Metadata["id_token_signing_alg_values_supported"] = "ES256", []string{"ES256"}
	})
	h.servers = []*authorize.Server{authorizetest.NewFederatedServer(h.t, successor.Provider, func(p *people.IdentityProvider, c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		authorizetest.UseES256(c)
		c.Clients[0].Scopes = append(c.Clients[0].Scopes, "groups")
		c.Store, p.Transport, p.SubIssuer = h.stored, successor, subIssuer
		c.SessionLifetime, c.AccessTokenLifetime = 24*time.Hour, 24*time.Hour
	})}
	return successor.Provider
}

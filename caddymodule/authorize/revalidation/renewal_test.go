package revalidation_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
)

// runWithoutRefreshTokens runs a test with a provider that issues access tokens of one hour and no refresh tokens.
func runWithoutRefreshTokens(t *testing.T, change func(*people.IdentityProvider, *authorize.Config), test func(*hospital)) {
	t.Helper()
	inHospital(t, -2, change, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token") }
		})
		test(h)
	})
}

// redirectChain is the chain of redirects up to a page or the app's response.
type redirectChain struct {
	asked []url.Values   // authentication requests to the provider
	path  string         // last URL at the gateway
	page  *http.Response // page; nil for a response to the app
	app   url.Values     // response to the app
}

// travel follows redirects at the gateway and at the provider.
func (h *hospital) travel(b *authorizetest.Browser, target string) (j redirectChain) {
	h.t.Helper()
	j.path = target
	for range 10 {
		r := b.Get(j.path)
		u, err := r.Location()
		switch {
		case err != nil:
			j.page = r
			return j
		case u.Host == "login.hospital.example":
			j.asked = append(j.asked, u.Query())
			u = &url.URL{Path: "/oauth2/callback/hospital", RawQuery: h.Authorize(h.t, u.String()).Encode()}
		case u.String() != u.RequestURI():
			j.app = u.Query()
			return j
		}
		j.path = u.RequestURI()
	}
	h.t.Fatalf("too many redirects: %v", j.asked)
	return j
}

// request returns an authorization request of the app through the provider.
func request(change url.Values) string {
	q := authorizetest.SelectProvider("hospital")
	q.Set("scope", "openid user/*.rs online_access")
	maps.Copy(q, change)
	return "/oauth2/authorize?" + authorizetest.Request(q).Encode()
}

// prompts returns the prompt values of the authentication requests.
func (j redirectChain) prompts() string {
	var all string
	for _, q := range j.asked {
		all += "[" + q.Get("prompt") + "]"
	}
	return all
}

func authorizationError(code string) func(*providertest.Settings) {
	return func(s *providertest.Settings) { s.AuthorizationError = code }
}

// If there is no refresh token, the first visit after the access token has expired redirects the browser to the provider with
// prompt=none. The response determines whether the session continues.
func TestRenewal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		after   time.Duration                  // time between sign-in and visit; default: the lifetime of the access token
		change  func(*providertest.Settings)   // changes at the provider before the visit
		idp     func(*people.IdentityProvider) // changes of the configuration; default: none
		prompts string                         // prompt values of the requests to the provider
		app     string                         // response to the app: an error, or "" for a code
		ends    bool                           // whether the session ends
	}{
		"confirmed":                  {prompts: "[none]"},
		"access token not expired":   {after: 30 * time.Minute},
		"revalidate off":             {idp: func(p *people.IdentityProvider) { p.Revalidate.Interval = -1 }},
		"login_required":             {change: authorizationError("login_required"), prompts: "[none][]", app: "login_required", ends: true},
		"interaction_required":       {change: authorizationError("interaction_required"), prompts: "[none][]", app: "interaction_required", ends: true},
		"consent_required":           {change: authorizationError("consent_required"), prompts: "[none][]", app: "consent_required", ends: true},
		"account_selection_required": {change: authorizationError("account_selection_required"), prompts: "[none][]", app: "account_selection_required", ends: true},
		"access_denied":              {change: authorizationError("access_denied"), prompts: "[none][]", app: "access_denied", ends: true},
		"temporarily_unavailable":    {change: authorizationError("temporarily_unavailable"), prompts: "[none]"},
		"server_error":               {change: authorizationError("server_error"), prompts: "[none]"},
		"an invalid ID token": {
			change: func(s *providertest.Settings) {
				s.IDToken = func(token *providertest.IDToken) { delete(token.Claims, "iss") }
			},
			prompts: "[none]",
		},
		"another person": {change: func(s *providertest.Settings) {
			s.People = []providertest.Person{{Subject: "another", Claims: providertest.Alice.Claims}}
		}, prompts: "[none][]", ends: true},
		"no longer admitted": {
			idp: func(p *people.IdentityProvider) {
				p.Allow = []people.AllowRule{{Claim: "group", Value: "clinicians"}}
			},
			change: func(s *providertest.Settings) {
				s.People = []providertest.Person{{Subject: providertest.Alice.Subject, Claims: map[string]any{"groups": []any{"visitors"}}}}
			}, prompts: "[none][]", app: "access_denied", ends: true,
		},
		"another session there": {
			change: func(s *providertest.Settings) {
				s.IDToken = func(token *providertest.IDToken) { token.Claims["sid"] = "second" }
			},
			prompts: "[none][]",
		},
		"silent for longer than an outage": {after: outage, prompts: "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runWithoutRefreshTokens(t, func(p *people.IdentityProvider, _ *authorize.Config) {
				if tt.idp != nil {
					tt.idp(p)
				}
			}, func(h *hospital) {
				b, tokens := h.signIn("online_access")
				waitForSweep(cmp.Or(tt.after, time.Hour))
				if tt.change != nil {
					h.Change(tt.change)
				}
				j := h.travel(b, request(nil))
				authorizetest.Equal(t, j.prompts(), tt.prompts, "prompts at the provider")
				if j.page != nil { // page for rejected people
					authorizetest.WantStatus(t, j.page, http.StatusForbidden)
					j = h.travel(b, authorizetest.ReadForm(authorizetest.Body(t, j.page)).Action+"&decision=deny")
				}
				if j.app.Get("error") != tt.app || j.app.Has("code") != (tt.app == "") {
					t.Errorf("the app gets %v", j.app)
				}
				if ended := !b.IsTokenValid(tokens.AccessToken); ended != tt.ends {
					t.Errorf("ended %t", ended)
				}
			})
		})
	}
}

// A renewal is valid until the next access token has expired. It is not a sign-in, so auth_time and sid are unchanged.
func TestRenewedUntilNextExpiry(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		signedInAt := b.Claims(tokens.IDToken)["auth_time"]
		for _, want := range []struct {
			after   time.Duration
			prompts string
		}{{time.Hour, "[none]"}, {50 * time.Minute, ""}, {10 * time.Minute, "[none]"}, {outage - time.Hour, "[none]"}, {outage - time.Hour, "[none]"}} {
			waitForSweep(want.after)
			j := h.travel(b, request(nil))
			authorizetest.Equal(t, j.prompts(), want.prompts, "prompts at the provider")
			again := b.RequestTokens(authorizetest.CodeForm(j.app.Get("code"), nil))
			authorizetest.Equal(t, b.Claims(again.IDToken)["auth_time"], signedInAt, "auth_time")
			authorizetest.Equal(t, b.Claims(again.IDToken)["sid"], b.Claims(tokens.IDToken)["sid"], "sid")
		}
		h.wantWorks(b, tokens)
	})
}

// Access tokens with a lifetime below the interval are each renewed.
func TestRenewalOfShortTokens(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token"); answer["expires_in"] = 120 }
		})
		b, _ := h.signIn("online_access")
		for range 3 {
			waitForSweep(2 * time.Minute)
			authorizetest.Equal(t, h.travel(b, request(nil)).prompts(), "[none]", "prompts at the provider")
		}
	})
}

// If a renewal has no response or returns an expired access token, it is not repeated within the interval.
func TestRenewalIsTriedOnce(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		waitForSweep(time.Hour)
		if at := authorizetest.Location(t, b.Get(request(nil))); at.Query().Get("prompt") != "none" {
			t.Fatalf("not sent to the provider: %v", at)
		}
		for _, prompts := range []string{"", "[none]", ""} { // the second renewal returns an expired token
			j := h.travel(b, request(nil))
			authorizetest.Equal(t, j.prompts(), prompts, "prompts at the provider")
			if !j.app.Has("code") {
				t.Errorf("the app gets %v", j.app)
			}
			h.Change(func(s *providertest.Settings) {
				s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token"); answer["expires_in"] = 1 }
			})
			if prompts == "" {
				waitForSweep(interval)
			}
		}
	})
}

// During an outage of the provider's discovery, sessions continue and pages are shown.
func TestRenewalDuringOutage(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		waitForSweep(time.Hour)
		h.SetFault(providertest.Discovery, providertest.Status(http.StatusServiceUnavailable))
		b.Server = h.servers[1] // has not discovered the provider yet
		if j := h.travel(b, "/oauth2/account"); j.page == nil || j.path != "/oauth2/account" {
			t.Errorf("the account page: %+v", j)
		}
		waitForSweep(interval)
		if j := h.travel(b, request(nil)); !j.app.Has("code") || len(j.asked) > 0 {
			t.Errorf("the app gets %v, the provider %v", j.app, j.asked)
		}
	})
}

// Pages of the gateway also trigger a renewal and are shown afterwards.
func TestRenewalOfPages(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/oauth2/account", "/oauth2/account?part=app", "/oauth2/login?part=app"} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			runWithoutRefreshTokens(t, nil, func(h *hospital) {
				b, _ := h.signIn("online_access")
				waitForSweep(time.Hour)
				first, second := h.travel(b, target), h.travel(b, target)
				authorizetest.Equal(t, first.prompts(), "[none]", "prompts at the provider")
				authorizetest.Equal(t, second.prompts(), "", "prompts at the provider, again")
				authorizetest.Equal(t, first.path, second.path, "the page")
				authorizetest.Equal(t, first.page.StatusCode, second.page.StatusCode, "the page")
				waitForSweep(time.Hour)
				h.Change(authorizationError("login_required"))
				last := h.travel(b, target)
				authorizetest.Equal(t, last.prompts(), "[none]", "prompts at the provider, signed out there")
				if last.page == nil || !hasPassword(t, last.page) {
					t.Errorf("no sign-in page: %+v", last)
				}
			})
		})
	}
}

// A renewal marks a pushed request as used. The callback continues the request.
func TestRenewalUsesPushedRequest(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		waitForSweep(time.Hour)
		_, pushed := authorizetest.Push(b, authorizetest.Request(authorizetest.SelectProvider("hospital")))
		target := "/oauth2/authorize?" + authorizetest.PushedRequest(pushed.RequestURI).Encode()
		if j := h.travel(b, target); j.prompts() != "[none]" || !j.app.Has("code") {
			t.Errorf("the app gets %v", j.app)
		}
		if j := h.travel(b, target); j.page == nil || j.page.StatusCode != http.StatusBadRequest {
			t.Errorf("used twice: %+v", j)
		}
	})
}

// Submitting a form does not trigger a renewal, because the form would be lost.
func TestRenewalLosesNoForm(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		waitForSweep(50 * time.Minute)
		form := url.Values{"request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, ""), "request")}, "action": {"end_apps"}}
		waitForSweep(10 * time.Minute)
		if r := b.Post("/oauth2/account", form); r.Header.Get("Location") != "/oauth2/account?done=end_apps" {
			t.Errorf("%d %s", r.StatusCode, r.Header.Get("Location"))
		}
		if b.IsTokenValid(tokens.AccessToken) {
			t.Error("the app has access still")
		}
	})
}

func hasPassword(t *testing.T, r *http.Response) bool {
	return authorizetest.ReadForm(authorizetest.Body(t, r)).Fields.Has("password")
}

// Requests with prompt=none do not result in a page.
func TestRenewalWithoutPages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change       func(*providertest.Settings)
		prompts, app string
	}{
		"confirmed":      {func(*providertest.Settings) {}, "[none]", ""},
		"login_required": {authorizationError("login_required"), "[none][none]", "login_required"},
		"another person": {func(s *providertest.Settings) {
			s.People = []providertest.Person{{Subject: "another", Claims: providertest.Alice.Claims}}
		}, "[none][none]", "login_required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runWithoutRefreshTokens(t, nil, func(h *hospital) {
				b, tokens := h.signIn("online_access")
				waitForSweep(time.Hour)
				h.Change(tt.change)
				j := h.travel(b, request(url.Values{"prompt": {"none"}, "id_token_hint": {tokens.IDToken}}))
				authorizetest.Equal(t, j.prompts(), tt.prompts, "prompts at the provider")
				if j.page != nil || j.app.Get("error") != tt.app || j.app.Has("code") != (tt.app == "") {
					t.Errorf("%+v", j)
				}
			})
		})
	}
}

// The response to a renewal never continues another session.
func TestRenewalIsOfItsSession(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "login_required", "server_error"} {
		runWithoutRefreshTokens(t, nil, func(h *hospital) {
			b, _ := h.signIn("online_access")
			h.Change(func(s *providertest.Settings) {
				s.People = []providertest.Person{{Subject: "another", Claims: providertest.Alice.Claims}}
			})
			other, tokens := h.signIn("online_access")
			h.Change(func(s *providertest.Settings) { s.People = []providertest.Person{providertest.Alice} })
			waitForSweep(time.Hour)
			at := authorizetest.Location(t, b.Get(request(nil)))
			h.Change(authorizationError(code))
			back := h.Authorize(t, at.String())
			b.Cookies[browser.SessionCookie] = other.Cookies[browser.SessionCookie]
			signIn := authorizetest.Location(t, b.Get("/oauth2/callback/hospital?"+back.Encode()))
			if at := authorizetest.Location(t, b.Get(signIn.RequestURI())); at.Query().Get("prompt") != "login" {
				t.Errorf("%q: does not request the sign-in of another person: %v", code, at)
			}
			if !b.IsTokenValid(tokens.AccessToken) {
				t.Errorf("%q: the other session ended", code)
			}
		})
	}
}

// A renewal stores the refresh token of a provider that has started to issue them.
func TestRenewalGetsRefreshToken(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		waitForSweep(time.Hour)
		h.Change(func(s *providertest.Settings) { s.TokenResponse = nil })
		authorizetest.Equal(t, h.travel(b, request(nil)).prompts(), "[none]", "prompts at the provider")
		waitForSweep(2 * time.Hour)
		authorizetest.Equal(t, h.travel(b, request(nil)).prompts(), "", "prompts at the provider, with a refresh token")
		h.wantWorks(b, tokens)
		if len(h.sentRefreshTokens()) == 0 {
			t.Error("no request with the refresh token")
		}
	})
}

// In frames, browsers may withhold the provider's cookies, so login_required would reveal nothing about the person.
func TestNoRenewalInFrames(t *testing.T) {
	t.Parallel()
	for dest, renews := range map[string]bool{"": true, "document": true, "iframe": false, "frame": false, "object": false} {
		runWithoutRefreshTokens(t, nil, func(h *hospital) {
			b, _ := h.signIn("online_access")
			waitForSweep(time.Hour)
			r := httptest.NewRequest(http.MethodGet, request(url.Values{"prompt": {"none"}}), nil)
			r.Header.Set("Sec-Fetch-Dest", dest)
			at := authorizetest.Location(t, b.Send(r))
			if sent := at.Host == "login.hospital.example"; sent != renews || at.Query().Has("code") == renews {
				t.Errorf("%q: %v", dest, at)
			}
		})
	}
}

// The page for prompt=select_account is also shown after a renewal.
func TestRenewalAsksForAccount(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		waitForSweep(time.Hour)
		j := h.travel(b, request(url.Values{"prompt": {"select_account"}}))
		authorizetest.Equal(t, j.prompts(), "[none]", "prompts at the provider")
		if j.page == nil || !strings.HasPrefix(j.path, "/oauth2/select_account") {
			t.Errorf("%s, and the app gets %v", j.path, j.app)
		}
	})
}

// Access tokens that expire immediately, with a new sid at each sign-in, cause one renewal per page and no loop.
func TestRenewalOfExpiredTokensEnds(t *testing.T) {
	t.Parallel()
	runWithoutRefreshTokens(t, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users = nil }, func(h *hospital) {
		sessions := 0
		h.Change(func(s *providertest.Settings) {
			s.TokenResponse = func(answer map[string]any) { delete(answer, "refresh_token"); answer["expires_in"] = 1 }
			s.IDToken = func(token *providertest.IDToken) { sessions++; token.Claims["sid"] = fmt.Sprint(sessions) }
		})
		b, _ := h.signIn("online_access")
		authorizetest.Equal(t, h.travel(b, "/oauth2/account").path, "/oauth2/account", "the page")
	})
}

package signin_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

func TestSecondFactor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		code func() string
		want int
	}{
		{"right", servertest.CodeNow, http.StatusFound},
		{"right, in two groups", func() string { return servertest.CodeNow()[:3] + " " + servertest.CodeNow()[3:] }, http.StatusFound},
		{"of the step before", func() string { return servertest.OTP(servertest.TOTPSecret, time.Now().Add(-30*time.Second)) }, http.StatusFound},
		{"of two steps before", func() string { return servertest.OTP(servertest.TOTPSecret, time.Now().Add(-60*time.Second)) }, http.StatusForbidden},
		{"wrong", func() string { return "not it" }, http.StatusForbidden},
		{"none", func() string { return "" }, http.StatusForbidden},
		{"the password", func() string { return "right" }, http.StatusForbidden},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, servertest.WithTOTP))
				factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
				r := b.SendOTP(factor, tt.code())
				if r.StatusCode != tt.want || (b.Cookies["__Host-fhir-session"] != "") != (tt.want == http.StatusFound) {
					t.Fatalf("status %d, cookies %v", r.StatusCode, b.Cookies)
				}
				if tt.want == http.StatusForbidden {
					text := servertest.Body(t, r)
					servertest.WantText(t, text, "The code is wrong, too old, or was used already.")
					r = b.SendOTP(servertest.Field(t, text, "factor"), servertest.CodeNow())
				}
				if servertest.Location(t, r).Query().Get("code") == "" {
					t.Error("no code after a right one")
				}
			})
		})
	}
}

func TestSecondFactorPage(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.WithTOTP))
	page := b.Get(b.SignIn(servertest.Request(nil), "alice", "right").Header.Get("Location"))
	text := servertest.Body(t, page)
	servertest.WantText(t, text, `<label for="code">`, `inputmode="numeric"`, `autocomplete="one-time-code"`, "<strong>The App</strong>")
	if !strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", page.Header)
	}
}

// Half a sign-in is none: no endpoint takes it for a session (CVE-2026-32246).
func TestSecondFactorIsNotSkipped(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.WithTOTP))
	factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
	if b.Cookies["__Host-fhir-session"] != "" || b.Cookies["__Host-fhir-device"] != "" {
		t.Errorf("cookies %v", b.Cookies)
	}
	servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(nil))).Path, "/oauth2/login")
	for _, name := range []string{"__Host-fhir-session", "__Host-fhir-device"} {
		b.Cookies[name] = factor
	}
	servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(nil))).Path, "/oauth2/login")
	servertest.WantStatus(t, b.Get("/oauth2/login?request="+factor), http.StatusBadRequest, "as a request")
}

// The page is for the browser, the minutes and the configuration in which the
// password was right, and leads to one session.
func TestSecondFactorIsBound(t *testing.T) {
	t.Parallel()
	var sameStore *store.Memory
	tests := []struct {
		name string
		do   func(t *testing.T, b *servertest.Browser, factor *string)
	}{
		{"in another browser", func(_ *testing.T, b *servertest.Browser, _ *string) { servertest.BecomeAnother(b) }},
		{"without the cookie", func(_ *testing.T, b *servertest.Browser, _ *string) { clear(b.Cookies) }},
		{"after more than five minutes", func(*testing.T, *servertest.Browser, *string) { time.Sleep(5*time.Minute + time.Second) }},
		{"made up", func(_ *testing.T, _ *servertest.Browser, factor *string) { *factor = "x" }},
		{"a second time", func(t *testing.T, b *servertest.Browser, factor *string) {
			servertest.Location(t, b.SendOTP(*factor, servertest.CodeNow()))
			time.Sleep(time.Minute)
		}},
		{"after the password changed", func(t *testing.T, b *servertest.Browser, _ *string) {
			b.Server = servertest.New(t, func(c *authorize.Config) {
				servertest.WithTOTP(c)
				c.Users[0].PasswordHash = "new"
				c.Store = sameStore
			})
		}},
		{"after the user was disabled", func(t *testing.T, b *servertest.Browser, _ *string) {
			b.Server = servertest.New(t, func(c *authorize.Config) { servertest.WithTOTP(c); c.Users[0].Disabled = true; c.Store = sameStore })
		}},
		{"after the second factor was taken away", func(t *testing.T, b *servertest.Browser, _ *string) {
			b.Server = servertest.New(t, func(c *authorize.Config) { c.Store = sameStore })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sameStore = store.NewMemory(0, 0)
				b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { servertest.WithTOTP(c); c.Store = sameStore }))
				factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
				tt.do(t, b, &factor)
				if r := b.SendOTP(factor, servertest.CodeNow()); r.StatusCode != http.StatusBadRequest || r.Header.Get("Set-Cookie") != "" {
					t.Errorf("status %d", r.StatusCode)
				}
			})
		})
	}
}

// A code counts once, also in another sign-in, after a restart, and of twenty
// that come at one moment (RFC 6238 §5.2).
func TestCodeCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable := store.NewMemory(0, 0)
		start := func() *authorize.Server {
			return servertest.New(t, func(c *authorize.Config) { servertest.WithTOTP(c); c.Durable = durable; c.Lockout.Failures = 100 })
		}
		s := start()
		var in atomic.Int32
		var wg sync.WaitGroup
		code := servertest.CodeNow()
		for range 20 {
			b := servertest.NewBrowser(t, s)
			factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
			wg.Go(func() {
				if b.SendOTP(factor, code).StatusCode == http.StatusFound {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Errorf("%d got in", in.Load())
		}
		b := servertest.NewBrowser(t, start())
		factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
		time.Sleep(29 * time.Second)
		servertest.WantStatus(t, b.SendOTP(factor, code), http.StatusForbidden, "after a restart")
	})
}

// Nor does a code of a step before that of the last that counted: who looked over a
// shoulder has no use for one that was passed over (RFC 6238 §5.2).
func TestEarlierCodeDoesNotCount(t *testing.T) {
	t.Parallel()
	steps := func(n time.Duration) string {
		return servertest.OTP(servertest.TOTPSecret, time.Now().Add(n*30*time.Second))
	}
	tests := []struct {
		name        string
		first, then time.Duration // steps from now
		want        int
	}{
		{"the step before", 0, -1, http.StatusForbidden},
		{"two steps before", 1, -1, http.StatusForbidden},
		{"the same step", 1, 1, http.StatusForbidden},
		{"the step after", 0, 1, http.StatusFound},
		{"two steps after", -1, 1, http.StatusFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := servertest.New(t, servertest.WithTOTP)
				for i, code := range []string{steps(tt.first), steps(tt.then)} {
					b, want := servertest.NewBrowser(t, s), []int{http.StatusFound, tt.want}[i]
					servertest.WantStatus(t, b.SendOTP(b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right")), code), want, i)
				}
			})
		})
	}
}

// Codes cannot be tried without end, not by beginning anew either, and a right
// password in between is no help.
func TestCodesAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servertest.New(t, servertest.WithTOTP)
		for range 10 {
			b := servertest.NewBrowser(t, s)
			if r := b.SendOTP(b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right")), "000000"); r.StatusCode != http.StatusForbidden {
				t.Fatalf("status %d", r.StatusCode)
			}
		}
		b := servertest.NewBrowser(t, s)
		r := b.SendOTP(b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right")), servertest.CodeNow())
		if text := servertest.Body(t, r); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || !strings.Contains(text, "Too many wrong codes.") {
			t.Errorf("status %d, %v: %s", r.StatusCode, r.Header, text)
		}
	})
}

// A provider that signs a linked user in is no way around their second factor.
func TestSecondFactorOfLinkedUser(t *testing.T) {
	t.Parallel()
	linked := func(secret string) *servertest.Browser {
		p := authorizetest.Start(t)
		return servertest.NewBrowser(t, servertest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].EmailVerified = "alice@hospital.example", true
			c.Users[0].TOTPSecret = secret
		}))
	}
	without := linked("")
	if u := servertest.Federate(without, nil); u.Query().Get("code") == "" {
		t.Fatalf("not linked: %s", u)
	}
	b := linked(servertest.TOTPSecret)
	r := b.Authorize(servertest.Request(servertest.ByProvider("hospital")))
	for r.StatusCode != http.StatusOK {
		r = servertest.FollowOnce(b, r)
	}
	sealed := servertest.Field(t, servertest.Body(t, r), "factor")
	if b.Cookies["__Host-fhir-session"] != "" {
		t.Fatalf("no second factor; cookies %v", b.Cookies)
	}
	code := servertest.Location(t, b.SendOTP(sealed, servertest.CodeNow())).Query().Get("code")
	id := b.Claims(servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(code, nil))).IDToken)
	if amr, _ := id["amr"].([]any); id["sub"] != "alice" || !slices.Contains(amr, any("mfa")) {
		t.Errorf("ID token %v", id)
	}
}

// The ID token says how the person signed in, also when the session answers.
func TestAMR(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*authorize.Config)
		want   string
	}{
		{"password", nil, "pwd"},
		{"password and code", servertest.WithTOTP, "pwd otp mfa"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, tt.change))
				r := b.SignIn(servertest.Request(nil), "alice", "right")
				if r.StatusCode == http.StatusSeeOther {
					r = b.SendOTP(b.OpenSecondFactor(r), servertest.CodeNow())
				}
				for range 2 {
					answer := b.RequestTokens(servertest.CodeForm(servertest.Location(t, r).Query().Get("code"), nil))
					var amr []string
					for _, m := range b.Claims(answer.IDToken)["amr"].([]any) {
						amr = append(amr, m.(string))
					}
					servertest.Equal(t, strings.Join(amr, " "), tt.want)
					r = b.Authorize(servertest.Request(nil))
				}
			})
		})
	}
}

// Giving a user a second factor ends the sessions that were begun without.
func TestSecondFactorEndsSessionsWithout(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Store = store }))
	b.Answer(servertest.Request(nil))
	b.Server = servertest.New(t, func(c *authorize.Config) { c.Store = store; servertest.WithTOTP(c) })
	servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(nil))).Path, "/oauth2/login")
}

func TestSecondFactorOfConfiguration(t *testing.T) {
	t.Parallel()
	c := servertest.Config()
	c.Users[0].TOTPSecret = "SHORT"
	if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "SHORT") {
		t.Errorf("error %v", err)
	}
}

// The page for the second factor leads to one session: once signed out, the other factor alone
// is not enough.
func TestCompletedSecondFactorIsOver(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, servertest.WithTOTP))
	factor := b.OpenSecondFactor(b.SignIn(servertest.Request(nil), "alice", "right"))
	b.SendOTP(factor, servertest.OTP(servertest.TOTPSecret, time.Now()))
	delete(b.Cookies, "__Host-fhir-session")
	r := b.SendOTP(factor, servertest.OTP(servertest.TOTPSecret, time.Now().Add(totp.Step)))
	if r.StatusCode != http.StatusBadRequest || b.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("%d, cookies %v", r.StatusCode, b.Cookies)
	}
}

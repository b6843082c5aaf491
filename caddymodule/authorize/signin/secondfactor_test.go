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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
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
		{"right", authorizetest.CodeNow, http.StatusFound},
		{"right, in two groups", func() string { return authorizetest.CodeNow()[:3] + " " + authorizetest.CodeNow()[3:] }, http.StatusFound},
		{"of the step before", func() string { return authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(-30*time.Second)) }, http.StatusFound},
		{"of two steps before", func() string { return authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(-60*time.Second)) }, http.StatusForbidden},
		{"wrong", func() string { return "not it" }, http.StatusForbidden},
		{"none", func() string { return "" }, http.StatusForbidden},
		{"the password", func() string { return "right" }, http.StatusForbidden},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
				factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
				r := b.SendOTP(factor, tt.code())
				if r.StatusCode != tt.want || (b.Cookies["__Host-fhir-session"] != "") != (tt.want == http.StatusFound) {
					t.Fatalf("status %d, cookies %v", r.StatusCode, b.Cookies)
				}
				if tt.want == http.StatusForbidden {
					text := authorizetest.Body(t, r)
					authorizetest.WantText(t, text, "The code is wrong, too old, or was used already.")
					r = b.SendOTP(authorizetest.Field(t, text, "factor"), authorizetest.CodeNow())
				}
				if authorizetest.Location(t, r).Query().Get("code") == "" {
					t.Error("no code after a right one")
				}
			})
		})
	}
}

func TestSecondFactorPage(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
	page := b.Get(b.SignIn(authorizetest.Request(nil), "alice", "right").Header.Get("Location"))
	text := authorizetest.Body(t, page)
	authorizetest.WantText(t, text, `<label for="code">`, `inputmode="numeric"`, `autocomplete="one-time-code"`, "<strong>The App</strong>")
	if !strings.Contains(page.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || page.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", page.Header)
	}
}

// Half a sign-in is none: no endpoint takes it for a session (CVE-2026-32246).
func TestSecondFactorIsNotSkipped(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
	factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
	if b.Cookies["__Host-fhir-session"] != "" || b.Cookies["__Host-fhir-device"] != "" {
		t.Errorf("cookies %v", b.Cookies)
	}
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path, "/oauth2/login")
	for _, name := range []string{"__Host-fhir-session", "__Host-fhir-device"} {
		b.Cookies[name] = factor
	}
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path, "/oauth2/login")
	authorizetest.WantStatus(t, b.Get("/oauth2/login?request="+factor), http.StatusBadRequest, "as a request")
}

// The page is for the browser, the minutes and the configuration in which the
// password was right, and leads to one session.
func TestSecondFactorIsBound(t *testing.T) {
	t.Parallel()
	var sameStore *store.Memory
	tests := []struct {
		name string
		do   func(t *testing.T, b *authorizetest.Browser, factor *string)
	}{
		{"in another browser", func(_ *testing.T, b *authorizetest.Browser, _ *string) { authorizetest.BecomeAnother(b) }},
		{"without the cookie", func(_ *testing.T, b *authorizetest.Browser, _ *string) { clear(b.Cookies) }},
		{"after more than five minutes", func(*testing.T, *authorizetest.Browser, *string) { time.Sleep(5*time.Minute + time.Second) }},
		{"made up", func(_ *testing.T, _ *authorizetest.Browser, factor *string) { *factor = "x" }},
		{"a second time", func(t *testing.T, b *authorizetest.Browser, factor *string) {
			authorizetest.Location(t, b.SendOTP(*factor, authorizetest.CodeNow()))
			time.Sleep(time.Minute)
		}},
		{"after the password changed", func(t *testing.T, b *authorizetest.Browser, _ *string) {
			b.Server = authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.WithTOTP(c)
				c.Users[0].PasswordHash = "new"
				c.Store = sameStore
			})
		}},
		{"after the user was disabled", func(t *testing.T, b *authorizetest.Browser, _ *string) {
			b.Server = authorizetest.New(t, func(c *authorize.Config) { authorizetest.WithTOTP(c); c.Users[0].Disabled = true; c.Store = sameStore })
		}},
		{"after the second factor was taken away", func(t *testing.T, b *authorizetest.Browser, _ *string) {
			b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = sameStore })
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sameStore = store.NewMemory(0, 0)
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { authorizetest.WithTOTP(c); c.Store = sameStore }))
				factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
				tt.do(t, b, &factor)
				if r := b.SendOTP(factor, authorizetest.CodeNow()); r.StatusCode != http.StatusBadRequest || r.Header.Get("Set-Cookie") != "" {
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
			return authorizetest.New(t, func(c *authorize.Config) { authorizetest.WithTOTP(c); c.Durable = durable; c.Lockout.Failures = 100 })
		}
		s := start()
		var in atomic.Int32
		var wg sync.WaitGroup
		code := authorizetest.CodeNow()
		for range 20 {
			b := authorizetest.NewBrowser(t, s)
			factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
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
		b := authorizetest.NewBrowser(t, start())
		factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
		time.Sleep(29 * time.Second)
		authorizetest.WantStatus(t, b.SendOTP(factor, code), http.StatusForbidden, "after a restart")
	})
}

// Nor does a code of a step before that of the last that counted: who looked over a
// shoulder has no use for one that was passed over (RFC 6238 §5.2).
func TestEarlierCodeDoesNotCount(t *testing.T) {
	t.Parallel()
	steps := func(n time.Duration) string {
		return authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(n*30*time.Second))
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
				s := authorizetest.New(t, authorizetest.WithTOTP)
				for i, code := range []string{steps(tt.first), steps(tt.then)} {
					b, want := authorizetest.NewBrowser(t, s), []int{http.StatusFound, tt.want}[i]
					authorizetest.WantStatus(t, b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right")), code), want, i)
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
		s := authorizetest.New(t, authorizetest.WithTOTP)
		for range 10 {
			b := authorizetest.NewBrowser(t, s)
			if r := b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right")), "000000"); r.StatusCode != http.StatusForbidden {
				t.Fatalf("status %d", r.StatusCode)
			}
		}
		b := authorizetest.NewBrowser(t, s)
		r := b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right")), authorizetest.CodeNow())
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || !strings.Contains(text, "Too many wrong codes.") {
			t.Errorf("status %d, %v: %s", r.StatusCode, r.Header, text)
		}
	})
}

// A provider that signs a linked user in is no way around their second factor.
func TestSecondFactorOfLinkedUser(t *testing.T) {
	t.Parallel()
	linked := func(secret string) *authorizetest.Browser {
		p := providertest.Start(t)
		return authorizetest.NewBrowser(t, authorizetest.NewFederated(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].EmailVerified = "alice@hospital.example", true
			c.Users[0].TOTPSecret = secret
		}))
	}
	without := linked("")
	if u := authorizetest.Federate(without, nil); u.Query().Get("code") == "" {
		t.Fatalf("not linked: %s", u)
	}
	b := linked(authorizetest.TOTPSecret)
	r := b.Authorize(authorizetest.Request(authorizetest.ByProvider("hospital")))
	for r.StatusCode != http.StatusOK {
		r = authorizetest.FollowOnce(b, r)
	}
	sealed := authorizetest.Field(t, authorizetest.Body(t, r), "factor")
	if b.Cookies["__Host-fhir-session"] != "" {
		t.Fatalf("no second factor; cookies %v", b.Cookies)
	}
	code := authorizetest.Location(t, b.SendOTP(sealed, authorizetest.CodeNow())).Query().Get("code")
	id := b.Claims(authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))).IDToken)
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
		{"password and code", authorizetest.WithTOTP, "pwd otp mfa"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, tt.change))
				r := b.SignIn(authorizetest.Request(nil), "alice", "right")
				if r.StatusCode == http.StatusSeeOther {
					r = b.SendOTP(b.OpenSecondFactor(r), authorizetest.CodeNow())
				}
				for range 2 {
					answer := b.RequestTokens(authorizetest.CodeForm(authorizetest.Location(t, r).Query().Get("code"), nil))
					var amr []string
					for _, m := range b.Claims(answer.IDToken)["amr"].([]any) {
						amr = append(amr, m.(string))
					}
					authorizetest.Equal(t, strings.Join(amr, " "), tt.want)
					r = b.Authorize(authorizetest.Request(nil))
				}
			})
		})
	}
}

// Giving a user a second factor ends the sessions that were begun without.
func TestSecondFactorEndsSessionsWithout(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	b.Answer(authorizetest.Request(nil))
	b.Server = authorizetest.New(t, func(c *authorize.Config) { c.Store = store; authorizetest.WithTOTP(c) })
	authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path, "/oauth2/login")
}

func TestSecondFactorOfConfiguration(t *testing.T) {
	t.Parallel()
	c := authorizetest.Config()
	c.Users[0].TOTPSecret = "SHORT"
	if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "SHORT") {
		t.Errorf("error %v", err)
	}
}

// The page for the second factor leads to one session: once signed out, the other factor alone
// is not enough.
func TestCompletedSecondFactorIsOver(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithTOTP))
	factor := b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right"))
	b.SendOTP(factor, authorizetest.OTP(authorizetest.TOTPSecret, time.Now()))
	delete(b.Cookies, "__Host-fhir-session")
	r := b.SendOTP(factor, authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(totp.Step)))
	if r.StatusCode != http.StatusBadRequest || b.Cookies["__Host-fhir-session"] != "" {
		t.Errorf("%d, cookies %v", r.StatusCode, b.Cookies)
	}
}

package signin_test

import (
	"net/http"
	"net/url"
	"regexp"
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
		{"right", authorizetest.CurrentOTP, http.StatusFound},
		{"right, in two groups", func() string { return authorizetest.CurrentOTP()[:3] + " " + authorizetest.CurrentOTP()[3:] }, http.StatusFound},
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
					authorizetest.WantText(t, text, "This code is incorrect, expired or already used.")
					r = b.SendOTP(authorizetest.FieldValue(t, text, "factor"), authorizetest.CurrentOTP())
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

// A sign-in without the second factor is not accepted as a session by any endpoint (CVE-2026-32246).
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

// The page is bound to the browser and to the account's configuration. It expires and starts at most one session.
func TestSecondFactorIsBound(t *testing.T) {
	t.Parallel()
	var sameStore *store.Memory
	tests := []struct {
		name string
		do   func(t *testing.T, b *authorizetest.Browser, factor *string)
	}{
		{"in another browser", func(_ *testing.T, b *authorizetest.Browser, _ *string) { authorizetest.ReplaceBrowserCookies(b) }},
		{"without the cookie", func(_ *testing.T, b *authorizetest.Browser, _ *string) { clear(b.Cookies) }},
		{"after more than five minutes", func(*testing.T, *authorizetest.Browser, *string) { time.Sleep(5*time.Minute + time.Second) }},
		{"made up", func(_ *testing.T, _ *authorizetest.Browser, factor *string) { *factor = "x" }},
		{"a second time", func(t *testing.T, b *authorizetest.Browser, factor *string) {
			authorizetest.Location(t, b.SendOTP(*factor, authorizetest.CurrentOTP()))
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
				if r := b.SendOTP(factor, authorizetest.CurrentOTP()); r.StatusCode != http.StatusBadRequest || strings.Contains(strings.Join(r.Header["Set-Cookie"], " "), "session") {
					t.Errorf("status %d, cookies %q", r.StatusCode, r.Header["Set-Cookie"])
				}
			})
		})
	}
}

// A code is accepted only once, regardless of sign-ins, restarts and twenty concurrent requests (RFC 6238 §5.2).
func TestCodeCountsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		durable := store.NewMemory(0, 0)
		start := func() *authorize.Server {
			return authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.WithTOTP(c)
				c.DurableStore = durable
				c.Lockout.Failures = 100
			})
		}
		s := start()
		var in atomic.Int32
		var wg sync.WaitGroup
		code := authorizetest.CurrentOTP()
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

// A code of an earlier time step than the last accepted code is rejected, so that an observed but
// unused code is worthless (RFC 6238 §5.2).
func TestEarlierCodeDoesNotCount(t *testing.T) {
	t.Parallel()
	steps := func(n time.Duration) string {
		return authorizetest.OTP(authorizetest.TOTPSecret, time.Now().Add(n*30*time.Second))
	}
	tests := []struct {
		name        string
		first, then time.Duration // time steps from now
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

// Code attempts are limited. Restarting the sign-in or a correct password in between does not reset the limit.
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
		r := b.SendOTP(b.OpenSecondFactor(b.SignIn(authorizetest.Request(nil), "alice", "right")), authorizetest.CurrentOTP())
		if text := authorizetest.Body(t, r); r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || !strings.Contains(text, "Too many attempts.") {
			t.Errorf("status %d, %v: %s", r.StatusCode, r.Header, text)
		}
	})
}

// A sign-in through a provider does not bypass the second factor of a linked user.
func TestSecondFactorOfLinkedUser(t *testing.T) {
	t.Parallel()
	linked := func(secret string) *authorizetest.Browser {
		p := providertest.Start(t)
		return authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
			idp.LinkEmail = true
			c.Users[0].Email, c.Users[0].EmailVerified = "alice@hospital.example", true
			c.Users[0].TOTPSecret = secret
		}))
	}
	without := linked("")
	if u := authorizetest.SignInAtProvider(without, nil); u.Query().Get("code") == "" {
		t.Fatalf("not linked: %s", u)
	}
	b := linked(authorizetest.TOTPSecret)
	r := b.Authorize(authorizetest.Request(authorizetest.SelectProvider("hospital")))
	for r.StatusCode != http.StatusOK {
		r = authorizetest.FollowOnce(b, r)
	}
	sealed := authorizetest.FieldValue(t, authorizetest.Body(t, r), "factor")
	if b.Cookies["__Host-fhir-session"] != "" {
		t.Fatalf("no second factor; cookies %v", b.Cookies)
	}
	code := authorizetest.Location(t, b.SendOTP(sealed, authorizetest.CurrentOTP())).Query().Get("code")
	id := b.Claims(authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(code, nil))).IDToken)
	if amr, _ := id["amr"].([]any); id["sub"] != "alice" || !slices.Contains(amr, any("mfa")) {
		t.Errorf("ID token %v", id)
	}
}

// amr in the ID token lists the methods of the sign-in, including with an existing session.
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
					r = b.SendOTP(b.OpenSecondFactor(r), authorizetest.CurrentOTP())
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

// Configuring a second factor for a user ends sessions that started without a second factor.
func TestSecondFactorEndsWeakerSessions(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store }))
	b.SignInAlice(authorizetest.Request(nil))
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

// The page for the second factor starts only one session. After logout, the second factor alone is not sufficient.
func TestSecondFactorPageIsSingleUse(t *testing.T) {
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

func withRequiredACR(acr string) func(*authorize.Config) {
	return func(c *authorize.Config) { c.Clients[0].ACR = acr }
}

// requestOutcome returns the outcome of a request with a session: a code, an error, or a page for an additional factor.
func requestOutcome(t *testing.T, b *authorizetest.Browser, change url.Values) string {
	t.Helper()
	u, err := b.Authorize(authorizetest.Request(change)).Location()
	switch {
	case err != nil:
		t.Fatal(err)
	case u.Query().Has("code"):
		return "code"
	case u.Query().Has("factor"):
		return "factor"
	}
	return u.Query().Get("error")
}

// A session with too few factors requires only the missing factor.
func TestStepUp(t *testing.T) {
	t.Parallel()
	essential := url.Values{"claims": {`{"id_token":{"acr":{"essential":true,"values":["mfa","phr"]}}}`}}
	for name, tt := range map[string]struct {
		required string // class required by the client
		app      bool   // whether the person has enrolled an authenticator app
		change   url.Values
		want     string
	}{
		"no class requested":                                      {"", true, nil, "code"},
		"requested, enrolled":                                     {"", true, url.Values{"acr_values": {"phr mfa"}}, "factor"},
		"requested, not enrolled":                                 {"", false, url.Values{"acr_values": {"mfa"}}, "code"},
		"requested, another factor enrolled":                      {"", true, url.Values{"acr_values": {"phr"}}, "code"},
		"requested, satisfied":                                    {"", true, url.Values{"acr_values": {"mfa sfa"}}, "code"},
		"requested, unknown class":                                {"", true, url.Values{"acr_values": {"gold"}}, "code"},
		"requested, prompt=none":                                  {"", true, url.Values{"acr_values": {"mfa"}, "prompt": {"none"}}, "code"},
		"requested as a claim":                                    {"", true, url.Values{"claims": {`{"id_token":{"acr":{"value":"mfa"}}}`}}, "factor"},
		"essential, enrolled":                                     {"", true, essential, "factor"},
		"essential, not enrolled":                                 {"", false, essential, "unmet_authentication_requirements"},
		"required, enrolled":                                      {"mfa", true, nil, "factor"},
		"required, not enrolled":                                  {"mfa", false, nil, "unmet_authentication_requirements"},
		"required, another factor enrolled":                       {"phr", true, nil, "unmet_authentication_requirements"},
		"required, prompt=none":                                   {"mfa", true, url.Values{"prompt": {"none"}}, "login_required"},
		"required, with a stronger class requested than enrolled": {"mfa", true, url.Values{"acr_values": {"phr"}}, "factor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, withRequiredACR(tt.required)))
			if tt.app {
				authorizetest.EnrollApp(b)
			}
			authorizetest.Equal(t, requestOutcome(t, b, tt.change), tt.want)
		})
	}
}

func TestStepUpByCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, withRequiredACR("mfa")))
		secret, _ := authorizetest.EnrollApp(b)
		before := b.Cookies["__Host-fhir-session"]
		r := b.Authorize(authorizetest.Request(nil))
		page := authorizetest.Body(t, b.Get(r.Header.Get("Location")))
		answer := authorizetest.Location(t, b.SendOTP(authorizetest.FieldValue(t, page, "factor"), authorizetest.OTP(secret, time.Now())))
		claims := b.Claims(b.Redeem(answer).IDToken)
		sid, _, _ := strings.Cut(before, ".")
		if claims["acr"] != "mfa" || claims["sid"] != sid {
			t.Errorf("%v, session before %s", claims, sid)
		}
		authorizetest.Equal(t, requestOutcome(t, b, nil), "code")
	})
}

// If a client requires a passkey, codes are not accepted.
func TestStepUpByPasskeyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, a := authorizetest.NewAccountBrowser(t, authorizetest.New(t, withRequiredACR("phr"))), authorizetest.NewAuthenticator()
		authorizetest.EnrollPasskey(b, a)
		r := b.Authorize(authorizetest.Request(nil))
		page := authorizetest.Body(t, b.Get(r.Header.Get("Location")))
		if strings.Contains(page, `name="code"`) {
			t.Errorf("the page asks for a code: %s", page)
		}
		authorizetest.WantStatus(t, b.SendOTP(authorizetest.FieldValue(t, page, "factor"), "000000"), http.StatusForbidden, "a code")
		if code := authorizetest.Location(t, authorizetest.UsePasskey(b, a, page)).Query().Get("code"); code == "" {
			t.Error("no code")
		}
	})
}

// An additional factor is not a sign-in if its session has ended.
func TestStepUpNeedsItsSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(b *authorizetest.Browser){
			"signed out": func(b *authorizetest.Browser) {
				sealed := authorizetest.FieldValue(t, authorizetest.Body(t, b.Get("/oauth2/logout")), "request")
				b.Post("/oauth2/logout", url.Values{"request": {sealed}})
			},
			"no cookie": func(b *authorizetest.Browser) { delete(b.Cookies, "__Host-fhir-session") },
			"sign-in of another user": func(b *authorizetest.Browser) {
				b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
			},
		} {
			b := authorizetest.NewAccountBrowser(t, authorizetest.New(t, withRequiredACR("mfa")))
			secret, _ := authorizetest.EnrollApp(b)
			page := authorizetest.Body(t, b.Get(b.Authorize(authorizetest.Request(nil)).Header.Get("Location")))
			end(b)
			authorizetest.WantStatus(t, b.SendOTP(authorizetest.FieldValue(t, page, "factor"), authorizetest.OTP(secret, time.Now())), http.StatusBadRequest, name)
		}
	})
}

// When a client begins to require a stricter class, existing refresh tokens are rejected.
func TestRequiredACREndsGrants(t *testing.T) {
	t.Parallel()
	c := authorizetest.Config()
	c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
	server := func(acr string) *authorize.Server {
		return authorizetest.New(t, func(changed *authorize.Config) { *changed = c; changed.Clients[0].ACR = acr })
	}
	tokens := authorizetest.NewBrowser(t, server("")).Tokens(authorizetest.WithOfflineAccess(nil))
	authorizetest.Equal(t, authorizetest.NewBrowser(t, server("mfa")).Refresh(tokens.RefreshToken, nil).Error, "invalid_grant")
}

// A provider's multi-factor amr is accepted.
func TestACROfProvider(t *testing.T) {
	t.Parallel()
	for amr, want := range map[string]string{"mfa": "mfa", "pwd": "sfa"} {
		p := providertest.Start(t, func(s *providertest.Settings) {
			s.IDToken = func(t *providertest.IDToken) { t.Claims["amr"] = []string{amr} }
		})
		b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(*people.IdentityProvider, *authorize.Config) {}))
		authorizetest.Equal(t, b.Claims(authorizetest.FederatedTokens(b, nil).IDToken)["acr"], any(want), amr)
	}
}

// Forms opened by an attacker with the password, before the owner enrolled a second factor, cannot
// add, replace or remove factors afterwards.
func TestFactorIsNotOutrun(t *testing.T) {
	t.Parallel()
	passkey := func(t *testing.T, b *authorizetest.Browser) url.Values {
		t.Helper()
		return authorizetest.PasskeyEnrollmentForm(b, authorizetest.NewAuthenticator())
	}
	app := func(_ *testing.T, b *authorizetest.Browser) url.Values {
		form, _ := authorizetest.AppEnrollmentForm(b)
		return form
	}
	button := func(action string) func(*testing.T, *authorizetest.Browser) url.Values {
		return func(t *testing.T, b *authorizetest.Browser) url.Values {
			t.Helper()
			return url.Values{"request": {authorizetest.FieldValue(t, authorizetest.AccountPage(b, ""), "request")}, "action": {action}}
		}
	}
	byApp := func(b *authorizetest.Browser) { authorizetest.EnrollApp(b) }
	byPasskey := func(b *authorizetest.Browser) { authorizetest.EnrollPasskey(b, authorizetest.NewAuthenticator()) }
	for _, tt := range []struct {
		name  string
		form  func(*testing.T, *authorizetest.Browser) url.Values
		enrol func(*authorizetest.Browser)
	}{
		{"a passkey, after an app", passkey, byApp},
		{"a passkey, after a passkey", passkey, byPasskey},
		{"an app, after a passkey", app, byPasskey},
		{"recovery codes regenerated", button("renew_recovery"), byApp},
		{"the app removed", button("remove_app"), byApp},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := authorizetest.New(t, nil)
				owner, thief := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s)
				form := tt.form(t, thief)
				tt.enrol(owner)
				before := listedFactors(owner)
				if before == "" {
					t.Fatal("the account page shows no factors")
				}
				r := thief.Post("/oauth2/account", form)
				if to := r.Header.Get("Location"); !strings.HasPrefix(to, "/oauth2/login?") {
					t.Errorf("%d to %q", r.StatusCode, to)
				}
				authorizetest.Equal(t, listedFactors(owner), before)
			})
		})
	}
}

var factorPattern = regexp.MustCompile(`value="(?:remove|rename)_[a-z]+"|\d+ codes? (?:is|are) left`)

func listedFactors(b *authorizetest.Browser) string {
	return strings.Join(factorPattern.FindAllString(authorizetest.AccountPage(b, ""), -1), " ")
}

// A session that started before a second factor was enrolled is accepted only with that factor, even on pages already open. The
// session that enrolled the factor continues.
func TestSessionFromBeforeFactor(t *testing.T) {
	t.Parallel()
	leadsToFactor := func(r *http.Response) bool {
		return strings.Contains(r.Header.Get("Location"), "/oauth2/login?factor=")
	}
	for name, give := range map[string]func(t *testing.T, b *authorizetest.Browser) (give func() *http.Response){
		"a code": func(_ *testing.T, b *authorizetest.Browser) func() *http.Response {
			return func() *http.Response { return b.Authorize(authorizetest.Request(nil)) }
		},
		"an access token": func(_ *testing.T, b *authorizetest.Browser) func() *http.Response {
			return func() *http.Response {
				return b.Authorize(authorizetest.Request(url.Values{"response_type": {"token"}}))
			}
		},
		"an answer to a consent page": func(t *testing.T, b *authorizetest.Browser) func() *http.Response {
			t.Helper()
			_, sealed := b.OpenForm(b.Authorize(authorizetest.Request(url.Values{"prompt": {"consent"}})))
			return func() *http.Response { return b.Post("/oauth2/consent", authorizetest.DecisionForm(sealed, "allow")) }
		},
		"the account page": func(_ *testing.T, b *authorizetest.Browser) func() *http.Response {
			return func() *http.Response { return authorizetest.FollowOnce(b, b.Get("/oauth2/account")) }
		},
		"a picker that was left open": func(_ *testing.T, b *authorizetest.Browser) func() *http.Response {
			page := b.Authorize(authorizetest.Request(url.Values{"scope": {"launch/patient"}})).Header.Get("Location")
			return func() *http.Response { return b.Get(page) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := authorizetest.New(t, func(c *authorize.Config) {
				c.Users[0].FHIRUser, c.Records = "Practitioner/alice", new(authorizetest.FHIRServer)
				c.Clients[0].Scopes, c.Clients[0].ResponseTypes = authorizetest.LaunchScopes, []string{"code", "token"}
			})
			owner, thief := authorizetest.NewAccountBrowser(t, s), authorizetest.NewAccountBrowser(t, s)
			ask := give(t, thief)
			authorizetest.EnrollApp(owner)
			if r := ask(); !leadsToFactor(r) {
				t.Errorf("%d to %q", r.StatusCode, r.Header.Get("Location"))
			}
			authorizetest.Equal(t, requestOutcome(t, thief, url.Values{"prompt": {"none"}}), "login_required", "without a page")
			authorizetest.Equal(t, requestOutcome(t, owner, nil), "code", "the owner's")
		})
	}
}

// newGoldProvider returns a provider with the acr gold for two factors. acr lists the values of successive sign-ins.
func newGoldProvider(t *testing.T, acr ...string) *providertest.Provider {
	t.Helper()
	return providertest.Start(t, func(s *providertest.Settings) {
		s.Metadata = map[string]any{"claims_parameter_supported": true}
		s.IDToken = func(token *providertest.IDToken) {
			token.Claims["acr"], acr = acr[0], acr[1:]
		}
	})
}

// requireGold returns a change that makes a client require a class, and maps the provider's acr gold.
func requireGold(required string) func(*people.IdentityProvider, *authorize.Config) {
	return func(idp *people.IdentityProvider, c *authorize.Config) {
		idp.ACRMap = map[string]string{"gold": "mfa"}
		c.Clients[0].ACR = required
	}
}

const essentialGold = `{"id_token":{"acr":{"essential":true,"value":"gold"}}}`

// The requested class is sent to the provider in the provider's acr values, and as an essential claim if it is required.
// Sign-ins below a required class are rejected.
func TestProviderGetsACRValues(t *testing.T) {
	t.Parallel()
	essential := url.Values{"claims": {`{"id_token":{"acr":{"essential":true,"value":"mfa"}}}`}}
	for name, tt := range map[string]struct {
		required  string
		change    url.Values
		acr       string // acr returned by the provider
		wantError string
		values    string // acr_values sent to the provider
		claims    string
	}{
		"nothing":                    {"", nil, "silver", "", "", ""},
		"one factor":                 {"sfa", nil, "silver", "", "", ""},
		"the client requires two":    {"mfa", nil, "gold", "", "gold", essentialGold},
		"and gets one":               {"mfa", nil, "silver", "unmet_authentication_requirements", "gold", essentialGold},
		"our word from the provider": {"mfa", nil, "mfa", "unmet_authentication_requirements", "gold", essentialGold},
		"an essential claim":         {"", essential, "gold", "", "gold", essentialGold},
		"and it is not met":          {"", essential, "silver", "unmet_authentication_requirements", "gold", essentialGold},
		"acr_values":                 {"", url.Values{"acr_values": {"mfa"}}, "silver", "", "gold", ""},
		"and words of the provider":  {"mfa", url.Values{"acr_values": {"platinum mfa"}}, "gold", "", "gold platinum", essentialGold},
		"a passkey":                  {"phr", nil, "gold", "unmet_authentication_requirements", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newGoldProvider(t, tt.acr)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, requireGold(tt.required)))
			authorizetest.Equal(t, authorizetest.SignInAtProvider(b, tt.change).Query().Get("error"), tt.wantError)
			requests := p.Requests(providertest.Authorization)
			authorizetest.Equal(t, len(requests), 1, "times at the provider")
			authorizetest.Equal(t, requests[0].Form.Get("acr_values"), tt.values)
			authorizetest.Equal(t, requests[0].Form.Get("claims"), tt.claims)
		})
	}
}

// A session below the requested class is redirected to the provider at most once.
func TestStepUpAtProvider(t *testing.T) {
	t.Parallel()
	parameters := url.Values{"acr_values": {"mfa"}}
	for name, tt := range map[string]struct {
		required string
		change   url.Values
		acr      string // provider's acr at the second sign-in
		want     string
		times    int // requests at the provider
	}{
		"met":                                    {"mfa", nil, "gold", "", 2},
		"not met":                                {"mfa", nil, "silver", "unmet_authentication_requirements", 2},
		"silently":                               {"mfa", url.Values{"prompt": {"none"}}, "gold", "", 2},
		"requested, returned":                    {"", parameters, "gold", "", 2},
		"requested, not returned":                {"", parameters, "silver", "", 2},
		"requested, without a page":              {"", url.Values{"acr_values": {"mfa"}, "prompt": {"none"}}, "silver", "", 1},
		"requested, not offered by the provider": {"", url.Values{"acr_values": {"phr"}}, "silver", "", 1},
		"required, not offered by any provider":  {"phr", nil, "gold", "unmet_authentication_requirements", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newGoldProvider(t, "silver", tt.acr)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				requireGold(tt.required)(idp, c)
				lenient := c.Clients[0]
				lenient.ID, lenient.ACR = "any", ""
				c.Clients = append(c.Clients, lenient)
			}))
			if code := authorizetest.SignInAtProvider(b, url.Values{"client_id": {"any"}}).Query().Get("code"); code == "" {
				t.Fatal("no sign-in")
			}
			answer := authorizetest.SignInAtProvider(b, tt.change)
			authorizetest.Equal(t, answer.Query().Get("error"), tt.want)
			authorizetest.Equal(t, len(p.Requests(providertest.Authorization)), tt.times, "times at the provider")
			if tt.acr == "gold" && tt.want == "" {
				authorizetest.Equal(t, b.Claims(b.Redeem(answer).IDToken)["acr"], any("mfa"))
			}
		})
	}
}

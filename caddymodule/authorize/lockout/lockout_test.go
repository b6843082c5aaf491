package lockout_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// challenge matches the parts of a page that differ each time it is rendered.
var challenge = regexp.MustCompile(`data-options="[^"]*"|name="passkey" value="[^"]*"`)

// countingComparer is a password comparer that takes 10 ms per comparison. It counts comparisons.
type countingComparer struct {
	compared atomic.Int32
	mu       sync.Mutex
	hashes   []string
}

func (c *countingComparer) Compare(hash, password []byte) (bool, error) {
	c.compared.Add(1)
	c.mu.Lock()
	c.hashes = append(c.hashes, string(hash))
	c.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	return string(hash) == string(password), nil
}

// After ten consecutive failures, each failure causes a wait, which doubles up to the maximum. During the wait, no password is
// compared, not even the correct one. The behavior is the same for nonexistent users.
func TestLockout(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"alice", "nobody"} {
		t.Run(user, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compare := new(countingComparer)
				s := authorizetest.New(t, func(c *authorize.Config) { c.Passwords = compare; c.Lockout.MaxWait = time.Minute })
				for range 10 {
					if status := authorizetest.TryPassword(t, s, user, "wrong"); status != http.StatusForbidden {
						t.Fatalf("a free failure: %d", status)
					}
				}
				for _, wait := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
					before := compare.compared.Load()
					r := authorizetest.NewBrowser(t, s).SignIn(authorizetest.Request(nil), user, "right")
					if got := r.Header.Get("Retry-After"); r.StatusCode != http.StatusTooManyRequests || got != strconv.Itoa(wait) {
						t.Fatalf("status %d, Retry-After %q, want %d", r.StatusCode, got, wait)
					}
					if compare.compared.Load() != before {
						t.Error("the password was compared")
					}
					time.Sleep(time.Duration(wait) * time.Second)
					if status := authorizetest.TryPassword(t, s, user, "wrong"); status != http.StatusForbidden {
						t.Fatalf("after %d s: %d", wait, status)
					}
				}
				time.Sleep(time.Minute)
				want := map[string]int{"alice": http.StatusFound, "nobody": http.StatusForbidden}[user]
				if status := authorizetest.TryPassword(t, s, user, "right"); status != want {
					t.Errorf("after the wait: %d", status)
				}
			})
		})
	}
}

// The page for throttled attempts is the same for existing and nonexistent users. The sign-in can be continued after the wait.
func TestLockoutPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.Failures = 1 })
		texts := map[string]string{}
		for _, user := range []string{"alice", "nobody"} {
			authorizetest.TryPassword(t, s, user, "wrong")
			b := authorizetest.NewBrowser(t, s)
			text := authorizetest.Body(t, b.SignIn(authorizetest.Request(nil), user, "right"))
			sealed := authorizetest.FieldValue(t, text, "request")
			time.Sleep(time.Second)
			r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if authorizetest.Location(t, r).Query().Get("code") == "" {
				t.Error("no code after the wait")
			}
			text = challenge.ReplaceAllString(text, "")
			texts[user] = strings.NewReplacer(sealed, "", user, "").Replace(text)
		}
		if texts["alice"] != texts["nobody"] || !strings.Contains(texts["alice"], `role="alert">Too many attempts. Try again in a second.`) {
			t.Errorf("%s\n%s", texts["alice"], texts["nobody"])
		}
	})
}

// All spellings of a name share one counter (CVE-2025-24806).
func TestLockoutCountsAllSpellingsTogether(t *testing.T) {
	t.Parallel()
	spellings := []string{"alice", "ALICE", " alice ", "Alice", "ａｌｉｃｅ", "alice\t", "aLiCe", "𝐚lice"}
	s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.Failures = len(spellings) })
	for _, name := range spellings {
		if status := authorizetest.TryPassword(t, s, name, "wrong"); status != http.StatusForbidden {
			t.Errorf("%q: %d", name, status)
		}
	}
	if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
}

// Failures elsewhere do not lock out the owner in a known browser. Another user's known browser permits no more attempts.
func TestLockoutSparesKnownBrowsers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before func(t *testing.T, b *authorizetest.Browser)
		want   int
	}{
		{"the owner's browser", func(_ *testing.T, b *authorizetest.Browser) { b.SignInAlice(authorizetest.Request(nil)) }, http.StatusFound},
		{"the owner's browser, signed out", func(_ *testing.T, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(nil))
			delete(b.Cookies, "__Host-fhir-session")
		}, http.StatusFound},
		{"one shared with another, who signed in last", func(_ *testing.T, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(nil))
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}, http.StatusFound},
		{"Unknown browser", func(*testing.T, *authorizetest.Browser) {}, http.StatusTooManyRequests},
		{"another user's browser", func(_ *testing.T, b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "bob", "other") }, http.StatusTooManyRequests},
		{"a cookie that was made up", func(_ *testing.T, b *authorizetest.Browser) { b.Cookies["__Host-fhir-device"] = "x.y" }, http.StatusTooManyRequests},
		{"a cookie that was changed", func(_ *testing.T, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(nil))
			b.Cookies["__Host-fhir-device"] += "AA"
		}, http.StatusTooManyRequests},
		{"the owner's browser, after failures of its own", func(t *testing.T, b *authorizetest.Browser) {
			b.SignInAlice(authorizetest.Request(nil))
			for range 3 {
				if r := b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "wrong"); r.StatusCode != http.StatusForbidden {
					t.Errorf("status %d", r.StatusCode)
				}
			}
		}, http.StatusTooManyRequests},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Lockout = lockout.Policy{Failures: 3, AddressFailures: 3} }))
				tt.before(t, b)
				for range 3 {
					authorizetest.TryPassword(t, b.Server, "alice", "wrong")
				}
				if r := b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right"); r.StatusCode != tt.want {
					t.Errorf("status %d, want %d", r.StatusCode, tt.want)
				}
			})
		})
	}
}

// A correct password resets the counter of consecutive failures.
func TestLockoutCountsInARow(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.Failures = 3 })
	for range 4 {
		for range 2 {
			if status := authorizetest.TryPassword(t, s, "alice", "wrong"); status != http.StatusForbidden {
				t.Errorf("wrong: %d", status)
			}
		}
		if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusFound {
			t.Errorf("right: %d", status)
		}
	}
}

// Owners of accounts with similar names cannot reset the counter of an account.
func TestLockoutIsNotResetByOthers(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) {
		c.Lockout.Failures = 4
		c.Users = append(c.Users, people.User{ID: "Alice", PasswordHash: "mine"})
	})
	for range 2 {
		for range 2 {
			authorizetest.TryPassword(t, s, "alice", "wrong")
		}
		if status := authorizetest.TryPassword(t, s, "Alice", "mine"); status == http.StatusForbidden {
			t.Errorf("the guesser's own: %d", status)
		}
	}
	if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
}

// A success also resets the failures of another spelling of the name, if it belongs to no other user, because phones capitalize
// names.
func TestLockoutForgivesSpellings(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.Failures, c.Users[0].ID = 3, "alice.Adams" })
	for range 4 {
		for range 2 {
			authorizetest.TryPassword(t, s, "Alice.Adams", "right")
		}
		if status := authorizetest.TryPassword(t, s, "alice.Adams", "right"); status != http.StatusFound {
			t.Errorf("status %d", status)
		}
	}
}

// Failures from an address are counted for all names together. A correct password does not reset them.
func TestLockoutOfAddresses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, from, to string
		want           int
	}{
		{"the same", "192.0.2.1:1", "192.0.2.1:2", http.StatusTooManyRequests},
		{"another", "192.0.2.1:1", "192.0.2.2:1", http.StatusFound},
		{"the same written as IPv6", "192.0.2.1:1", "[::ffff:192.0.2.1]:1", http.StatusTooManyRequests},
		{"another of the same /64", "[2001:db8::1]:1", "[2001:db8::ffff:1]:1", http.StatusTooManyRequests},
		{"another /64", "[2001:db8::1]:1", "[2001:db8:0:1::1]:1", http.StatusFound},
		{"one with a zone", "[fe80::1%eth0]:1", "[fe80::2%eth1]:1", http.StatusTooManyRequests},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.AddressFailures = 5 })
			from := func(address string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r.RemoteAddr = address
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("198.51.100.%d", time.Now().Nanosecond()%255)) // ignored, because no proxy is trusted
					s.ServeHTTP(w, r)
				})
			}
			for i := range 5 {
				authorizetest.TryPassword(t, from(tt.from), "user"+strconv.Itoa(i), "wrong")
				if i < 4 {
					authorizetest.TryPassword(t, from(tt.from), "bob", "other")
				}
			}
			if status := authorizetest.TryPassword(t, from(tt.to), "alice", "right"); status != tt.want {
				t.Errorf("status %d, want %d", status, tt.want)
			}
		})
	}
}

// Counters survive a restart if only the durable store does.
func TestLockoutSurvivesRestart(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	start := func() *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) { c.DurableStore = durable; c.Lockout.Failures = 2 })
	}
	s := start()
	authorizetest.TryPassword(t, s, "alice", "wrong")
	authorizetest.TryPassword(t, s, "alice", "wrong")
	if status := authorizetest.TryPassword(t, start(), "alice", "right"); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
}

// With fifty concurrent attempts, no more wrong passwords are compared than are permitted without a wait, and no correct
// password is rejected.
func TestLockoutAtOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		password string
		compared int32
		status   int
		many     int
	}{
		{"wrong", 10, http.StatusForbidden, 10},
		{"right", 50, http.StatusFound, 50},
	}
	for _, tt := range tests {
		t.Run(tt.password, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compare := new(countingComparer)
				s := authorizetest.New(t, func(c *authorize.Config) { c.Passwords = compare })
				var reached atomic.Int32
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						if authorizetest.TryPassword(t, s, "alice", tt.password) == tt.status {
							reached.Add(1)
						}
					})
				}
				wg.Wait()
				if got := compare.compared.Load(); got != tt.compared || int(reached.Load()) != tt.many {
					t.Errorf("%d compared, %d answered %d", got, reached.Load(), tt.status)
				}
			})
		})
	}
}

// Failures that cannot be stored throttle sign-ins of all users.
func TestLockoutWithFullStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, func(c *authorize.Config) {
			c.Lockout.Failures = 2
			c.DurableStore = storetest.NewInterceptedStore(func(method, key string) error {
				if method != "Get" && strings.HasPrefix(key, "lockout:") {
					return store.ErrFull // the store accepts no new entries
				}
				return nil
			})
		})
		authorizetest.TryPassword(t, s, "alice", "wrong")
		authorizetest.TryPassword(t, s, "bob", "wrong")
		if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusTooManyRequests {
			t.Errorf("status %d", status)
		}
		time.Sleep(2 * time.Second)
		if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusFound {
			t.Errorf("after the wait: %d", status)
		}
	})
}

// Failures that cannot be stored also throttle attempts with client secrets.
func TestSecretsWithFullStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, func(c *authorize.Config) {
			c.Lockout.Failures = 2
			c.DurableStore = storetest.NewInterceptedStore(func(method, key string) error {
				if method != "Get" && strings.HasPrefix(key, "lockout:") {
					return store.ErrFull // the store accepts no new entries
				}
				return nil
			})
		})
		send := func(secret string) int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, authorizetest.MarkAsTLS(secretRequest("/oauth2/introspect", "service", secret, true)))
			return w.Code
		}
		for i, want := range []int{http.StatusUnauthorized, http.StatusUnauthorized, http.StatusTooManyRequests} {
			if status := send("wrong"); status != want {
				t.Errorf("try %d: %d, want %d", i, status, want)
			}
		}
		if status := send("hush"); status != http.StatusTooManyRequests {
			t.Errorf("the right one: %d", status)
		}
	})
}

// A failure is counted even if the client disconnects.
func TestLockoutCountsDisconnects(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	s := authorizetest.New(t, func(c *authorize.Config) {
		c.Passwords = disconnectingComparer{leave}
		c.Lockout.Failures = 1
		c.DurableStore = cancelableStore{c.Store}
	})
	authorizetest.TryPassword(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r.WithContext(ctx)) }), "alice", "wrong")
	if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
	if status := authorizetest.TryPassword(t, s, "bob", "other"); status != http.StatusFound {
		t.Errorf("another: %d", status) // 429 would mean that the failure was counted for all users
	}
}

// disconnectingComparer is a password comparer that disconnects the client.
type disconnectingComparer struct{ leave func() }

func (l disconnectingComparer) Compare(hash, password []byte) (bool, error) {
	l.leave()
	return string(hash) == string(password), nil
}

// cancelableStore is a store that fails for canceled contexts, as databases do.
type cancelableStore struct{ store.Store }

func (s cancelableStore) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return errors.Join(ctx.Err(), s.Store.Put(context.WithoutCancel(ctx), key, value, ttl))
}

func (s cancelableStore) Get(ctx context.Context, key string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return s.Store.Get(ctx, key)
}

func TestLockoutOff(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout = lockout.Policy{Off: true} })
	for range 120 {
		if status := authorizetest.TryPassword(t, s, "alice", "wrong"); status != http.StatusForbidden {
			t.Fatalf("status %d", status)
		}
	}
}

// For unknown names, a password is compared with the hash of an existing user. Each hash is used for about the same number of
// names, and always for the same ones, so that timing does not reveal which users exist.
func TestUnknownUserTiming(t *testing.T) {
	t.Parallel()
	compare := new(countingComparer)
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, func(c *authorize.Config) { c.Passwords = compare; c.Lockout.Off = true })
		for i := range 200 {
			authorizetest.TryPassword(t, s, "nobody"+strconv.Itoa(i%100), "wrong")
		}
	})
	if !slices.Equal(compare.hashes[:100], compare.hashes[100:]) {
		t.Error("the same names were compared with other hashes")
	}
	quick := 0
	for _, hash := range compare.hashes[:100] {
		if hash == "right" {
			quick++
		}
	}
	if quick < 30 || quick > 70 {
		t.Errorf("%d of 100 names cost what alice does", quick)
	}
}

func TestLockoutSettings(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]lockout.Policy{
		"negative": {Failures: -1}, "negative of addresses": {AddressFailures: -1},
		"short": {MaxWait: time.Millisecond}, "long": {MaxWait: 25 * time.Hour},
	} {
		c := authorizetest.Config()
		c.Lockout = l
		if _, err := authorize.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A browser is known until the user's password or factors change.
func TestKnownBrowserExpiresWithPassword(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(c *authorize.Config, other *authorizetest.Browser)
		want   int
	}{
		"nothing":          {func(*authorize.Config, *authorizetest.Browser) {}, http.StatusFound},
		"another password": {func(c *authorize.Config, _ *authorizetest.Browser) { c.Users[0].PasswordHash = c.Users[1].PasswordHash }, http.StatusTooManyRequests},
		"a configured app": {func(c *authorize.Config, _ *authorizetest.Browser) { c.Users[0].TOTPSecret = totp.NewSecret() }, http.StatusTooManyRequests},
		"an app enrolled":  {func(_ *authorize.Config, other *authorizetest.Browser) { authorizetest.EnrollApp(other) }, http.StatusTooManyRequests},
		"a passkey enrolled": {func(_ *authorize.Config, other *authorizetest.Browser) {
			authorizetest.EnrollPasskey(other, authorizetest.NewAuthenticator())
		}, http.StatusTooManyRequests},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var config authorize.Config
				before := authorizetest.New(t, func(c *authorize.Config) {
					c.Lockout = lockout.Policy{Failures: 3, AddressFailures: 3}
					config = *c
				})
				b := authorizetest.NewBrowser(t, before)
				b.SignInAlice(authorizetest.Request(nil))
				config.Users = slices.Clone(config.Users)
				tt.change(&config, authorizetest.NewAccountBrowser(t, before))
				s, err := authorize.New(config)
				if err != nil {
					t.Fatal(err)
				}
				b.Server = s
				for range 3 {
					authorizetest.TryPassword(t, s, "alice", "wrong")
				}
				password := map[bool]string{true: "other", false: "right"}[name == "another password"]
				r := b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", password)
				if r.StatusCode != tt.want {
					t.Errorf("status %d, want %d", r.StatusCode, tt.want)
				}
			})
		})
	}
}

// All known browsers of an account share an additional limit.
func TestKnownBrowsersShareLimit(t *testing.T) {
	t.Parallel()
	for kind, tt := range map[string]struct {
		secret string
		guess  func(t *testing.T, b *authorizetest.Browser) *http.Response
	}{
		"passwords": {"", func(_ *testing.T, b *authorizetest.Browser) *http.Response {
			return b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "wrong")
		}},
		"codes": {totp.NewSecret(), func(t *testing.T, b *authorizetest.Browser) *http.Response {
			t.Helper()
			r := b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
			return b.SendOTP(authorizetest.FieldValue(t, authorizetest.Body(t, b.Get(r.Header.Get("Location"))), "factor"), "000000")
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := authorizetest.New(t, func(c *authorize.Config) {
					c.Users[0].TOTPSecret, c.Lockout = tt.secret, lockout.Policy{Failures: 5, AddressFailures: 1000}
				})
				var cookies []string
				for range 20 {
					b := authorizetest.NewBrowser(t, s)
					r := b.SignIn(authorizetest.Request(nil), "alice", "right")
					if tt.secret != "" {
						factor := authorizetest.FieldValue(t, authorizetest.Body(t, b.Get(r.Header.Get("Location"))), "factor")
						b.SendOTP(factor, authorizetest.OTP(tt.secret, time.Now()))
						time.Sleep(time.Minute) // wait for the next code
					}
					cookies = append(cookies, b.Cookies["__Host-fhir-device"])
				}
				tried := 0
				for _, cookie := range cookies {
					b := authorizetest.NewBrowser(t, s)
					for range 5 {
						b.Cookies["__Host-fhir-device"] = cookie
						if r := tt.guess(t, b); r.StatusCode == http.StatusForbidden {
							tried++
						}
					}
				}
				if tried != 10 {
					t.Errorf("%d guesses by 20 browsers, want 10: twice what one has", tried)
				}
			})
		})
	}
}

const strongSecret = "7d4be3ce86cd4f9ab0e1b2c3d4e5f607"

// secretRequest returns a request that contains a client secret.
func secretRequest(path, id, secret string, basic bool) *http.Request {
	form := url.Values{"grant_type": {"client_credentials"}, "token": {"x"}}
	if !basic {
		form.Set("client_id", id)
		form.Set("client_secret", secret)
	}
	r := authorizetest.PostRequest(path, form)
	if basic {
		r.SetBasicAuth(id, secret)
	}
	return r
}

// Guessing of client secrets is throttled at all endpoints. Failures do not block clients in other networks, or clients with
// a secret that is not guessable.
func TestSecretsAreCounted(t *testing.T) {
	t.Parallel()
	const here, there = "192.0.2.1", "198.51.100.1"
	for _, path := range []string{"/oauth2/token", "/oauth2/introspect", "/oauth2/revoke", "/oauth2/par"} {
		for _, basic := range []bool{true, false} {
			t.Run(fmt.Sprint(path, " basic ", basic), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var last audit.Event
					s := authorizetest.New(t, func(c *authorize.Config) {
						c.Audit = func(_ context.Context, e audit.Event) { last = e }
						c.Clients = append(c.Clients, client.Client{ID: "strong", Secret: strongSecret, GrantTypes: []string{"client_credentials"}})
					})
					send := func(address, id, secret string) *http.Response {
						w := httptest.NewRecorder()
						fromAddress(s, address).ServeHTTP(w, authorizetest.MarkAsTLS(secretRequest(path, id, secret, basic)))
						return w.Result()
					}
					for _, id := range []string{"service", "strong"} {
						for range 10 {
							if r := send(here, id, "wrong"); r.StatusCode != http.StatusUnauthorized {
								t.Fatalf("a free failure: %d", r.StatusCode)
							}
						}
						r := send(here, id, "wrong")
						if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") != "1" || authorizetest.Decode[authorizetest.TokenResponse](t, r).Error != "temporarily_unavailable" {
							t.Errorf("%s: status %d, Retry-After %q", id, r.StatusCode, r.Header.Get("Retry-After"))
						}
						if last.Kind != audit.KindLockout || last.ClientID != id || !last.Anonymous || last.Err.Error() != "temporarily_unavailable: too many wrong client secrets from your network: wait a second" {
							t.Errorf("%s: event %+v", id, last)
						}
					}
					for _, tt := range []struct {
						name, address, id, secret string
						refused                   bool
					}{
						{"a right one that could be guessed", here, "service", "hush", true},
						{"from another network", there, "service", "hush", false},
						{"another client", here, "confidential", "s3cret/+ %", false},
						{"correct high-entropy secret", here, "strong", strongSecret, false},
					} {
						if r := send(tt.address, tt.id, tt.secret); (r.StatusCode == http.StatusTooManyRequests) != tt.refused || r.StatusCode == http.StatusUnauthorized {
							t.Errorf("%s: status %d", tt.name, r.StatusCode)
						}
					}
					time.Sleep(time.Second)
					if r := send(here, "service", "hush"); r.StatusCode == http.StatusTooManyRequests {
						t.Error("after the wait: still")
					}
					if r := send(here, "service", "wrong"); r.StatusCode != http.StatusUnauthorized {
						t.Errorf("after a right one: %d", r.StatusCode)
					}
				})
			})
		}
	}
}

// Failures from a network are counted for all clients together, including nonexistent ones. No success resets them. Sign-ins of
// users are counted separately.
func TestSecretsAreCountedByNetwork(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) { c.Lockout.AddressFailures = 20 })
	b := authorizetest.NewBrowser(t, s)
	for i := range 20 {
		if r := b.Send(secretRequest("/oauth2/token", fmt.Sprint("made-up-", i), "wrong", true)); r.StatusCode != http.StatusUnauthorized {
			t.Fatalf("a free failure: %d", r.StatusCode)
		}
		if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); i < 19 && r.StatusCode != http.StatusOK {
			t.Fatalf("a right one between: %d", r.StatusCode)
		}
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", r.StatusCode)
	}
	if status := authorizetest.TryPassword(t, s, "alice", "right"); status != http.StatusFound {
		t.Errorf("a person: %d", status)
	}
}

// Other encodings of the client_id do not permit additional attempts. Requests without a secret are not counted.
func TestSecretTriesOfOneClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	for range 20 {
		b.Post("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}})
		b.Send(secretRequest("/oauth2/token", "service", "", true))
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusOK {
		t.Errorf("status %d", r.StatusCode)
	}
	for i := range 10 {
		id := []string{"service", "%73ervice", "s%65rvice", "servic%65"}[i%4]
		b.Send(secretRequest("/oauth2/token", id, "wrong", true))
	}
	if r := b.Send(secretRequest("/oauth2/token", "service", "hush", true)); r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("status %d", r.StatusCode)
	}
}

// With fifty concurrent sign-ins at three gateways, no more wrong passwords are compared than at a single gateway, and all
// correct passwords are accepted.
func TestLockoutAtSeveralGateways(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		password       string
		compared, many int32
		status         int
	}{
		{"wrong", 10, 10, http.StatusForbidden},
		{"right", 50, 50, http.StatusFound},
	} {
		t.Run(tt.password, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				compare, shared := new(countingComparer), storetest.NewSharedMemory()
				var gateways []*authorize.Server
				for range 3 {
					gateways = append(gateways, authorizetest.New(t, func(c *authorize.Config) {
						s := shared.Gateway()
						c.Passwords, c.Store, c.DurableStore = compare, s, s
					}))
				}
				var reached atomic.Int32
				var all sync.WaitGroup
				for i := range 50 {
					all.Go(func() {
						if authorizetest.TryPassword(t, gateways[i%3], "alice", tt.password) == tt.status {
							reached.Add(1)
						}
					})
				}
				all.Wait()
				if compare.compared.Load() != tt.compared || reached.Load() != tt.many {
					t.Errorf("%d compared, %d answered %d", compare.compared.Load(), reached.Load(), tt.status)
				}
			})
		})
	}
}

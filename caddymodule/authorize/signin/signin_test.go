package signin_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func TestSignInPage(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	page := b.Get(servertest.Location(t, b.Authorize(servertest.Request(nil))).String())
	text := servertest.Body(t, page)
	servertest.WantText(t, text,
		"<html lang=\"en\">", "name=\"viewport\"", "<strong>The App</strong>", "method=\"post\"",
		"<label for=\"username\">", "autocomplete=\"username\"", "<label for=\"password\">", "autocomplete=\"current-password\"",
	)
	if strings.Contains(text, "<script") || strings.Contains(text, "http://") {
		t.Error("the page has a script or a link")
	}
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; style-src 'sha256-",
		"X-Frame-Options":         "DENY",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-store",
	} {
		if got := page.Header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSignInRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, user, password string }{
		{"wrong password", "alice", "wrong"},
		{"unknown user", "mallory", "right"},
		{"another's password", "bob", "right"},
		{"no password", "alice", ""},
		{"nothing", "", ""},
		{"markup", `"><script>alert(1)</script>`, "x"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, nil))
			r := b.SignIn(servertest.Request(nil), tt.user, tt.password)
			text := servertest.Body(t, r)
			if r.StatusCode != http.StatusForbidden || r.Header.Get("Location") != "" || b.Cookies["__Host-fhir-session"] != "" {
				t.Errorf("status %d, cookies %v", r.StatusCode, b.Cookies)
			}
			if !strings.Contains(text, "The user name or the password is wrong.") || strings.Contains(text, "<script>alert") {
				t.Errorf("page: %s", text)
			}
			sealed := servertest.Field(t, text, "request")
			again := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if servertest.Location(t, again).Query().Get("code") == "" {
				t.Error("no code after a second, right try")
			}
		})
	}
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	r := servertest.NewBrowser(t, servertest.New(t, nil)).SignIn(servertest.Request(nil), "alice", "right")
	cookie := r.Header.Get("Set-Cookie")
	servertest.WantText(t, cookie, "__Host-fhir-session=", "Path=/", "HttpOnly", "Secure", "SameSite=Lax")
}

func TestSessionAnswersAtOnce(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	b.Answer(servertest.Request(nil))
	servertest.WantCode(t, servertest.Location(t, b.Authorize(servertest.Request(url.Values{"state": {"2"}}))))
}

func TestSessionRotatesAtSignIn(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, nil)
	b := servertest.NewBrowser(t, server)
	b.Answer(servertest.Request(nil))
	old := b.Cookies["__Host-fhir-session"]
	fresh := servertest.NewBrowser(t, server)
	login := servertest.Location(t, fresh.Authorize(servertest.Request(nil))).String()
	fresh.Cookies["__Host-fhir-session"] = old // fixed there by somebody
	sealed := servertest.Field(t, servertest.Body(t, fresh.Get(login)), "request")
	fresh.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
	if fresh.Cookies["__Host-fhir-session"] == old {
		t.Error("the session id stayed")
	}
	servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(nil))).Path, "/oauth2/login")
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		wait   time.Duration
		change func(*authorize.Config)
		ends   bool
	}{
		{"not by a reload", time.Minute, func(*authorize.Config) {}, false},
		{"after its lifetime", 8*time.Hour + time.Second, func(*authorize.Config) {}, true},
		{"when the user is removed", 0, func(c *authorize.Config) { c.Users = c.Users[1:] }, true},
		{"when the password is changed", 0, func(c *authorize.Config) { c.Users[0].PasswordHash = "new" }, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := store.NewMemory(0, 0)
				b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Store = store }))
				b.Answer(servertest.Request(nil))
				time.Sleep(tt.wait)
				b.Server = servertest.New(t, func(c *authorize.Config) { c.Store = store; tt.change(c) })
				servertest.Equal(t, servertest.Location(t, b.Authorize(servertest.Request(nil))).Path == "/oauth2/login", tt.ends, "ended")
			})
		})
	}
}

// A pending request works in the browser it was begun in, for an hour, and
// under the configuration of the moment it is used.
func TestPendingRequest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		do   func(t *testing.T, b *servertest.Browser, sealed *string)
		want int
	}{
		{"as it was", func(*testing.T, *servertest.Browser, *string) {}, http.StatusFound},
		{"in another browser", func(_ *testing.T, b *servertest.Browser, _ *string) { servertest.BecomeAnother(b) }, http.StatusBadRequest},
		{"without the cookie", func(_ *testing.T, b *servertest.Browser, _ *string) { clear(b.Cookies) }, http.StatusBadRequest},
		{"changed", func(_ *testing.T, _ *servertest.Browser, s *string) { *s = servertest.Altered(*s) }, http.StatusBadRequest},
		{"cut short", func(_ *testing.T, _ *servertest.Browser, s *string) { *s = (*s)[:50] }, http.StatusBadRequest},
		{"not sealed by us", func(_ *testing.T, _ *servertest.Browser, s *string) { *s = "x.y" }, http.StatusBadRequest},
		{"missing", func(_ *testing.T, _ *servertest.Browser, s *string) { *s = "" }, http.StatusBadRequest},
		{"within the hour", func(*testing.T, *servertest.Browser, *string) { time.Sleep(59 * time.Minute) }, http.StatusFound},
		{"after more than an hour", func(*testing.T, *servertest.Browser, *string) { time.Sleep(61 * time.Minute) }, http.StatusBadRequest},
		{"of a client that is gone", func(t *testing.T, b *servertest.Browser, _ *string) {
			b.Server = servertest.New(t, func(c *authorize.Config) { c.Clients = c.Clients[1:] })
		}, http.StatusBadRequest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := servertest.NewBrowser(t, servertest.New(t, nil))
				sealed := servertest.Location(t, b.Authorize(servertest.Request(nil))).Query().Get("request")
				tt.do(t, b, &sealed)
				r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
				servertest.WantStatus(t, r, tt.want)
			})
		})
	}
}

func TestLongRequestCanBeSignedInTo(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	page := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"state": {strings.Repeat("s", 8<<10)}})))
	if length := len(page.String()); length > 15<<10 {
		t.Errorf("the page's address has %d bytes; Caddy takes 16 KiB of header", length)
	}
	u := b.Answer(servertest.Request(url.Values{"state": {strings.Repeat("s", 8<<10)}}))
	servertest.WantCode(t, u)
}

func TestSignInWithoutUsers(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Users = nil }))
	servertest.WantError(t, servertest.Location(t, b.Authorize(servertest.Request(nil))), "access_denied")
}

// tabs are opened at the very same moment in a browser that has no cookie yet, and
// get their answers one after the other, all into the same jar.
func tabs(t *testing.T, server http.Handler, n int, q url.Values) (b *servertest.Browser, answers []*http.Response) {
	b = servertest.NewBrowser(t, server)
	for range n {
		tab := servertest.NewBrowser(t, server)
		answers = append(answers, tab.Authorize(q))
		maps.Copy(b.Cookies, tab.Cookies)
	}
	return b, answers
}

// Each of them leads to the client (RFC 9700 §4.7: the request is bound to the
// browser, not to the one tab that came last).
func TestTabsAtOnce(t *testing.T) {
	t.Parallel()
	p := authorizetest.Start(t)
	server := servertest.NewFederated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users[0].TOTPSecret = servertest.TOTPSecret })
	t.Run("password", func(t *testing.T) {
		b, answers := tabs(t, server, 3, servertest.Request(nil))
		for i, r := range answers {
			sealed := servertest.Location(t, r).Query().Get("request")
			r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
			servertest.WantStatus(t, r, http.StatusFound, i)
		}
	})
	t.Run("second factor", func(t *testing.T) {
		b, answers := tabs(t, server, 2, servertest.Request(nil))
		for i, r := range answers {
			sealed := servertest.Location(t, r).Query().Get("request")
			r := b.Post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if r.StatusCode != http.StatusSeeOther || b.OpenSecondFactor(r) == "" {
				t.Errorf("tab %d: status %d", i, r.StatusCode)
			}
		}
	})
	t.Run("provider", func(t *testing.T) {
		b, answers := tabs(t, server, 3, servertest.Request(servertest.ByProvider("hospital")))
		for i, r := range answers {
			servertest.WantCode(t, servertest.Location(t, b.Follow(r)), i)
		}
	})
	// Both are away before either comes back.
	t.Run("provider, side by side", func(t *testing.T) {
		b, answers := tabs(t, server, 2, servertest.Request(servertest.ByProvider("hospital")))
		for i, r := range answers {
			answers[i] = servertest.FollowOnce(b, servertest.FollowOnce(b, r))
		}
		for i, r := range answers {
			servertest.WantCode(t, servertest.Location(t, b.Follow(r)), i)
		}
	})
}

// Whoever has an id gets no other, so that their number stays small.
func TestBrowserIDStays(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	for range 5 {
		b.Authorize(servertest.Request(nil))
	}
	if len(b.Cookies) != 1 {
		t.Errorf("cookies %v", b.Cookies)
	}
}

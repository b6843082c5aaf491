package signin_test

import (
	"maps"
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

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
			if r.StatusCode != http.StatusFound {
				t.Errorf("tab %d: status %d", i, r.StatusCode)
			}
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

package authorize_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

const browserCookie = "__Host-fhir-browser-"

// becomeAnother keeps all cookies but those that bind a sign-in to the browser.
func (b *browser) becomeAnother() {
	for name := range b.cookies {
		if strings.HasPrefix(name, browserCookie) {
			b.cookies[name] = "other"
		}
	}
}

// tabs are opened at the very same moment in a browser that has no cookie yet, and
// get their answers one after the other, all into the same jar.
func tabs(t *testing.T, server http.Handler, n int, q url.Values) (b *browser, answers []*http.Response) {
	b = newBrowser(t, server)
	for range n {
		tab := newBrowser(t, server)
		answers = append(answers, tab.authorize(q))
		maps.Copy(b.cookies, tab.cookies)
	}
	return b, answers
}

// Each of them leads to the client (RFC 9700 §4.7: the request is bound to the
// browser, not to the one tab that came last).
func TestTabsAtOnce(t *testing.T) {
	p := authorizetest.Start(t)
	server := federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Users[0].TOTPSecret = totpSecret })
	t.Run("password", func(t *testing.T) {
		b, answers := tabs(t, server, 3, request(nil))
		for i, r := range answers {
			sealed := location(t, r).Query().Get("request")
			r := b.post("/oauth2/login", url.Values{"request": {sealed}, "username": {"bob"}, "password": {"other"}})
			if r.StatusCode != http.StatusFound {
				t.Errorf("tab %d: status %d", i, r.StatusCode)
			}
		}
	})
	t.Run("second factor", func(t *testing.T) {
		b, answers := tabs(t, server, 2, request(nil))
		for i, r := range answers {
			sealed := location(t, r).Query().Get("request")
			r := b.post("/oauth2/login", url.Values{"request": {sealed}, "username": {"alice"}, "password": {"right"}})
			if r.StatusCode != http.StatusSeeOther || b.factor(r) == "" {
				t.Errorf("tab %d: status %d", i, r.StatusCode)
			}
		}
	})
	t.Run("provider", func(t *testing.T) {
		b, answers := tabs(t, server, 3, request(by("hospital")))
		for i, r := range answers {
			if u := location(t, b.follow(r)); u.Query().Get("code") == "" {
				t.Errorf("tab %d: sent to %s", i, u)
			}
		}
	})
	// Both are away before either comes back.
	t.Run("provider, side by side", func(t *testing.T) {
		b, answers := tabs(t, server, 2, request(by("hospital")))
		for i, r := range answers {
			answers[i] = b.step(b.step(r))
		}
		for i, r := range answers {
			if u := location(t, b.follow(r)); u.Query().Get("code") == "" {
				t.Errorf("tab %d: sent to %s", i, u)
			}
		}
	})
}

// Whoever has an id gets no other, so that their number stays small.
func TestBrowserIDStays(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	for range 5 {
		b.authorize(request(nil))
	}
	if len(b.cookies) != 1 {
		t.Errorf("cookies %v", b.cookies)
	}
}

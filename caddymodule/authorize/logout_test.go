package authorize_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

const afterLogout = "https://app.example.org/bye"

func logoutServer(t *testing.T) *authorize.Server {
	return newServer(t, func(c *authorize.Config) { c.Clients[0].PostLogoutRedirectURIs = []string{afterLogout} })
}

func (b *browser) signedIn() bool {
	b.t.Helper()
	return location(b.t, b.authorize(request(nil))).Query().Get("code") != ""
}

func TestLogout(t *testing.T) {
	tests := []struct {
		name string
		q    func(idToken string) url.Values
		want string // where the browser is sent; "" for the page that asks
	}{
		{"with a hint", func(id string) url.Values { return url.Values{"id_token_hint": {id}} }, "signed out"},
		{"with a hint and an address", func(id string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {afterLogout}, "state": {"a b"}}
		}, afterLogout + "?state=a%20b"},
		{"with an address and no state", func(id string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {afterLogout}}
		}, afterLogout},
		{"without a hint", func(string) url.Values {
			return url.Values{"client_id": {"app"}, "post_logout_redirect_uri": {afterLogout}}
		}, ""},
		{"with nothing", func(string) url.Values { return nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBrowser(t, logoutServer(t))
			idToken := b.tokens(nil).IDToken
			r := b.get("/oauth2/logout?" + tt.q(idToken).Encode())
			page := ""
			if r.StatusCode == http.StatusOK {
				page = body(t, r)
			}
			switch tt.want {
			case "":
				if !strings.Contains(page, "Sign out?") || !b.signedIn() {
					t.Fatalf("status %d, signed in %t: %s", r.StatusCode, b.signedIn(), page)
				}
				field := hiddenField.FindStringSubmatch(page)
				b.post("/oauth2/logout", url.Values{"request": {field[1]}})
			case "signed out":
				if !strings.Contains(page, "You are signed out") {
					t.Errorf("status %d: %s", r.StatusCode, page)
				}
			default:
				if got := r.Header.Get("Location"); got != tt.want {
					t.Errorf("sent to %q", got)
				}
			}
			if b.signedIn() {
				t.Error("still signed in")
			}
		})
	}
}

func TestLogoutRefused(t *testing.T) {
	tests := []struct {
		name string
		q    func(id, access string) url.Values
	}{
		{"an address that is not registered", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {"https://evil.example/"}}
		}},
		{"a redirect URI that is none for signing out", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {callback}}
		}},
		{"an address without a client", func(_, _ string) url.Values {
			return url.Values{"post_logout_redirect_uri": {afterLogout}}
		}},
		{"a hint that was changed", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id[:len(id)-4] + "AAAA"}}
		}},
		{"a hint without a signature", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {"eyJhbGciOiJub25lIn0." + strings.Split(id, ".")[1] + "."}}
		}},
		{"an access token as a hint", func(_, access string) url.Values { return url.Values{"id_token_hint": {access}} }},
		{"a hint of another client", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id}, "client_id": {"strict"}}
		}},
		{"a parameter twice", func(id, _ string) url.Values { return url.Values{"id_token_hint": {id, id}} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBrowser(t, logoutServer(t))
			tokens := b.tokens(nil)
			r := b.get("/oauth2/logout?" + tt.q(tokens.IDToken, tokens.AccessToken).Encode())
			if r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || !b.signedIn() {
				t.Errorf("status %d, Location %q, signed in %t", r.StatusCode, r.Header.Get("Location"), b.signedIn())
			}
		})
	}
}

// Another site's form cannot sign anybody out: the page's answer is bound to
// the browser that was shown the page.
func TestLogoutIsNotForged(t *testing.T) {
	server := logoutServer(t)
	b, other := newBrowser(t, server), newBrowser(t, server)
	b.answer(request(nil))
	other.answer(request(nil))
	field := hiddenField.FindStringSubmatch(body(t, other.get("/oauth2/logout")))
	for _, request := range []string{field[1], "x.y"} {
		if r := b.post("/oauth2/logout", url.Values{"request": {request}}); r.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d", r.StatusCode)
		}
	}
	if !b.signedIn() {
		t.Error("signed out by another's page")
	}
}

// An ID token of somebody else signs nobody out unasked.
func TestLogoutWithHintOfAnother(t *testing.T) {
	server := logoutServer(t)
	hint := newBrowser(t, server).tokens(nil).IDToken
	bob := newBrowser(t, server)
	bob.signIn(request(nil), "bob", "other")
	if page := body(t, bob.get("/oauth2/logout?id_token_hint="+hint)); !strings.Contains(page, "Sign out?") || !bob.signedIn() {
		t.Errorf("signed in: %t; %s", bob.signedIn(), page)
	}
}

func TestLogoutPosted(t *testing.T) {
	b := newBrowser(t, logoutServer(t))
	q := url.Values{"client_id": {"app"}, "state": {"s"}}
	if r := b.post("/oauth2/logout", q); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/oauth2/logout?"+q.Encode() {
		t.Errorf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
	}
}

func TestLogoutWhenNobodyIsSignedIn(t *testing.T) {
	b := newBrowser(t, logoutServer(t))
	r := b.get("/oauth2/logout?" + url.Values{"client_id": {"app"}, "post_logout_redirect_uri": {afterLogout}, "state": {"s"}}.Encode())
	if got := r.Header.Get("Location"); got != afterLogout+"?state=s" {
		t.Errorf("sent to %q", got)
	}
}

// A session is over once its browser signed out: its cookie, should anybody have
// kept it, leads nowhere.
func TestSessionIsDeadAfterLogout(t *testing.T) {
	b := newBrowser(t, logoutServer(t))
	idToken := b.tokens(nil).IDToken
	kept := b.cookies["__Host-fhir-session"]
	r := b.get("/oauth2/logout?id_token_hint=" + idToken)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("status %d", r.StatusCode)
	}
	b.cookies["__Host-fhir-session"] = kept
	if b.signedIn() {
		t.Error("the cookie still signs in")
	}
}

package flow_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func logoutServer(t *testing.T) *authorize.Server {
	return authorizetest.New(t, func(c *authorize.Config) {
		c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.PostLogoutRedirectURI}
	})
}

func TestLogout(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		q    func(idToken string) url.Values
		want string // redirect target; "" for the confirmation page
	}{
		{"with a hint", func(id string) url.Values { return url.Values{"id_token_hint": {id}} }, "signed out"},
		{"with a hint and an address", func(id string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}, "state": {"a b"}}
		}, authorizetest.PostLogoutRedirectURI + "?state=a%20b"},
		{"with an address and no state", func(id string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}}
		}, authorizetest.PostLogoutRedirectURI},
		{"without a hint", func(string) url.Values {
			return url.Values{"client_id": {"app"}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}}
		}, ""},
		{"with a hint signed by a retired key", func(id string) url.Values {
			_, rest, _ := strings.Cut(id, ".")
			header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"retired","typ":"JWT"}`))
			return url.Values{"id_token_hint": {header + "." + rest}, "client_id": {"app"}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}}
		}, ""},
		{"with nothing", func(string) url.Values { return nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, logoutServer(t))
			idToken := b.Tokens(nil).IDToken
			r := b.Get("/oauth2/logout?" + tt.q(idToken).Encode())
			page := ""
			if r.StatusCode == http.StatusOK {
				page = authorizetest.Body(t, r)
			}
			switch tt.want {
			case "":
				if !strings.Contains(page, "Sign out?") || !b.HasSession() {
					t.Fatalf("status %d, signed in %t: %s", r.StatusCode, b.HasSession(), page)
				}
				sealed := authorizetest.FieldValue(t, page, "request")
				b.Post("/oauth2/logout", url.Values{"request": {sealed}})
			case "signed out":
				authorizetest.WantText(t, page, "You’re signed out")
			default:
				authorizetest.Equal(t, r.Header.Get("Location"), tt.want)
			}
			if b.HasSession() {
				t.Error("still signed in")
			}
		})
	}
}

func TestLogoutRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		q    func(id, access string) url.Values
	}{
		{"an address that is not registered", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {"https://evil.example/"}}
		}},
		{"redirect URI not registered for logout", func(id, _ string) url.Values {
			return url.Values{"id_token_hint": {id}, "post_logout_redirect_uri": {authorizetest.Callback}}
		}},
		{"an address without a client", func(_, _ string) url.Values {
			return url.Values{"post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}}
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
			b := authorizetest.NewBrowser(t, logoutServer(t))
			tokens := b.Tokens(nil)
			r := b.Get("/oauth2/logout?" + tt.q(tokens.IDToken, tokens.AccessToken).Encode())
			if r.StatusCode != http.StatusBadRequest || r.Header.Get("Location") != "" || !b.HasSession() {
				t.Errorf("status %d, Location %q, signed in %t", r.StatusCode, r.Header.Get("Location"), b.HasSession())
			}
		})
	}
}

// A cross-site form cannot sign a user out, because the confirmation page is bound to its browser.
func TestForgedLogout(t *testing.T) {
	t.Parallel()
	server := logoutServer(t)
	b, other := authorizetest.NewBrowser(t, server), authorizetest.NewBrowser(t, server)
	b.SignInAlice(authorizetest.Request(nil))
	other.SignInAlice(authorizetest.Request(nil))
	sealed := authorizetest.FieldValue(t, authorizetest.Body(t, other.Get("/oauth2/logout")), "request")
	for _, request := range []string{sealed, "x.y"} {
		authorizetest.WantStatus(t, b.Post("/oauth2/logout", url.Values{"request": {request}}), http.StatusBadRequest)
	}
	if !b.HasSession() {
		t.Error("signed out by another's page")
	}
}

// A logout request with the ID token of another user requires confirmation.
func TestLogoutWithHintOfAnother(t *testing.T) {
	t.Parallel()
	server := logoutServer(t)
	hint := authorizetest.NewBrowser(t, server).Tokens(nil).IDToken
	bob := authorizetest.NewBrowser(t, server)
	bob.SignIn(authorizetest.Request(nil), "bob", "other")
	if page := authorizetest.Body(t, bob.Get("/oauth2/logout?id_token_hint="+hint)); !strings.Contains(page, "Sign out?") || !bob.HasSession() {
		t.Errorf("signed in: %t; %s", bob.HasSession(), page)
	}
}

// A request of a client's server has no session cookie and ends only the session that its hint identifies (OpenID Connect
// RP-Initiated Logout §2).
func TestLogoutByHintAlone(t *testing.T) {
	t.Parallel()
	bobsBrowser := func(b *authorizetest.Browser) { b.SignIn(authorizetest.Request(nil), "bob", "other") }
	tests := []struct {
		name  string
		at    func(*authorizetest.Browser) // browser that sends the hint
		wait  time.Duration
		ends  bool
		after func(*authorizetest.Browser)
	}{
		{"without a cookie", nil, 0, true, nil},
		{"with a cookie that leads nowhere", func(b *authorizetest.Browser) { b.Cookies["__Host-fhir-session"] = "x.y" }, 0, true, nil},
		{"an hour after the hint has expired", nil, 2 * time.Hour, true, nil},
		{"another person's browser, with confirmation", bobsBrowser, 0, false, nil},
		{"at the browser of another person, who agrees", bobsBrowser, 0, true, func(b *authorizetest.Browser) {
			sealed := authorizetest.FieldValue(b.T, authorizetest.Body(b.T, b.Get("/oauth2/logout?id_token_hint="+b.Cookies["hint"])), "request")
			b.Post("/oauth2/logout", url.Values{"request": {sealed}})
		}},
		{"in another session of the same person", func(b *authorizetest.Browser) { b.SignInAlice(authorizetest.Request(nil)) }, 0, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := logoutServer(t)
				b, same, by := authorizetest.NewBrowser(t, server), authorizetest.NewBrowser(t, server), authorizetest.NewBrowser(t, server)
				hint := b.Tokens(nil).IDToken
				same.SignInAlice(authorizetest.Request(nil))
				if tt.at != nil {
					tt.at(by)
				}
				time.Sleep(tt.wait)
				authorizetest.WantStatus(t, by.Get("/oauth2/logout?id_token_hint="+hint), http.StatusOK)
				if by.Cookies["hint"] = hint; tt.after != nil {
					tt.after(by)
				}
				if b.HasSession() == tt.ends || !same.HasSession() {
					t.Errorf("ended %t, the person's other session %t", !b.HasSession(), !same.HasSession())
				}
			})
		})
	}
}

// Clients of the hinted session receive a back-channel logout, as after every logout.
func TestLogoutByHintNotifiesClients(t *testing.T) {
	t.Parallel()
	p := authorizetest.NewLogoutReceiver(t)
	s, tr := authorizetest.NewNotifyingServer(t, p)
	b := authorizetest.NewBrowser(t, s)
	id := b.Tokens(nil).IDToken
	authorizetest.NewBrowser(t, s).Post("/oauth2/logout", url.Values{"id_token_hint": {id}}) // redirects to GET
	if !b.HasSession() {
		t.Fatal("session ended although no browser followed the redirect")
	}
	if authorizetest.NewBrowser(t, s).Get("/oauth2/logout?id_token_hint=" + id); b.HasSession() {
		t.Fatal("session not ended, so no client is notified")
	}
	if claims := b.Claims(<-p.Tokens); claims["sid"] != b.Claims(id)["sid"] {
		t.Errorf("logout token claims %v", claims)
	}
	if e := tr.WaitForNotification("app"); e.Err != nil || e.User != "alice" {
		t.Errorf("recorded %+v", e)
	}
}

// ID tokens of a deleted client do not end sessions.
func TestLogoutByHintOfDeletedClient(t *testing.T) {
	t.Parallel()
	store := store.NewMemory(0, 0)
	with := func(change func(*authorize.Config)) *authorize.Server {
		return authorizetest.New(t, func(c *authorize.Config) { c.Store = store; change(c) })
	}
	b := authorizetest.NewBrowser(t, with(func(*authorize.Config) {}))
	hint := b.Tokens(nil).IDToken
	authorizetest.NewBrowser(t, with(func(c *authorize.Config) { c.Clients[0].ID = "another" })).Get("/oauth2/logout?id_token_hint=" + hint)
	if !b.HasSession() {
		t.Error("signed out")
	}
}

// The provider's logout URL contains the provider's ID token. Therefore, only the browser that signed in is redirected there,
// but not other senders of a hint.
func TestLogoutByHintSkipsProvider(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.KeepUpstreamToken = true })
	b := authorizetest.NewBrowser(t, s)
	hint := authorizetest.FederatedTokens(b, nil).IDToken
	r := authorizetest.NewBrowser(t, s).Get("/oauth2/logout?id_token_hint=" + hint)
	if r.StatusCode != http.StatusOK || r.Header.Get("Location") != "" || b.HasSession() {
		t.Errorf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
	}
}

func TestLogoutPosted(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, logoutServer(t))
	q := url.Values{"client_id": {"app"}, "state": {"s"}}
	if r := b.Post("/oauth2/logout", q); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/oauth2/logout?"+q.Encode() {
		t.Errorf("status %d, Location %q", r.StatusCode, r.Header.Get("Location"))
	}
}

func TestLogoutWithoutSession(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, logoutServer(t))
	r := b.Get("/oauth2/logout?" + url.Values{"client_id": {"app"}, "post_logout_redirect_uri": {authorizetest.PostLogoutRedirectURI}, "state": {"s"}}.Encode())
	authorizetest.Equal(t, r.Header.Get("Location"), authorizetest.PostLogoutRedirectURI+"?state=s")
}

// A copied session cookie is invalid after the browser has signed out.
func TestSessionCookieAfterLogout(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, logoutServer(t))
	idToken := b.Tokens(nil).IDToken
	cookie := b.Cookies["__Host-fhir-session"]
	r := b.Get("/oauth2/logout?id_token_hint=" + idToken)
	if r.StatusCode != http.StatusOK {
		t.Fatalf("status %d", r.StatusCode)
	}
	b.Cookies["__Host-fhir-session"] = cookie
	if b.HasSession() {
		t.Error("the cookie still signs in")
	}
}

// Logout also signs out at the provider, with the stored ID token, if any, as a hint. It then returns to the client.
func TestUpstreamLogout(t *testing.T) {
	t.Parallel()
	for name, keepToken := range map[string]bool{"token kept": true, "token not kept": false} {
		t.Run(name, func(t *testing.T) {
			p := providertest.Start(t)
			b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, c *authorize.Config) {
				idp.KeepUpstreamToken = keepToken
				c.Clients[0].PostLogoutRedirectURIs = []string{authorizetest.Callback + "/bye"}
			}))
			answer := authorizetest.FederatedTokens(b, nil)
			q := url.Values{"id_token_hint": {answer.IDToken}, "post_logout_redirect_uri": {authorizetest.Callback + "/bye"}, "state": {"z"}}
			r := b.Follow(b.Get("/oauth2/logout?" + q.Encode()))
			authorizetest.Equal(t, r.Header.Get("Location"), authorizetest.Callback+"/bye?state=z")
			requests := p.Requests(providertest.EndSession)
			if len(requests) != 1 || (requests[0].Form.Get("id_token_hint") != "") != keepToken {
				t.Errorf("end-session requests %v", requests)
			}
			authorizetest.Equal(t, authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Path, "/oauth2/login", "still signed in")
		})
	}
}

// A repeated return from the provider's logout does not show the page "You’re signed out" to the next person in the browser.
func TestUpstreamLogoutRepeatedAfterSignIn(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, providertest.Start(t), nil))
	answer := authorizetest.FederatedTokens(b, nil)
	back := authorizetest.Location(t, authorizetest.FollowOnce(b, b.Get("/oauth2/logout?id_token_hint="+answer.IDToken)))
	authorizetest.WantText(t, authorizetest.Body(t, b.Get(back.RequestURI())), "You’re signed out")
	authorizetest.FederatedTokens(b, nil)
	for _, address := range []string{back.RequestURI(), back.Path + "?state=x"} {
		page := authorizetest.Body(t, b.Get(address))
		authorizetest.WantText(t, page, "Sign out?", "</strong> · ")
		b.Post("/oauth2/logout", url.Values{"request": {authorizetest.FieldValue(t, page, "request")}})
		if b.HasSession() {
			t.Error("the page does not sign out")
		}
		authorizetest.FederatedTokens(b, nil)
	}
}

// After password sign-ins of other people, a sign-out still signs the first person out at the provider. Otherwise, the provider
// would sign that person in for the next one.
func TestLogoutAtProviderOfReplacedSession(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	b := authorizetest.NewBrowser(t, authorizetest.NewFederatedServer(t, p, func(idp *people.IdentityProvider, _ *authorize.Config) { idp.KeepUpstreamToken = true }))
	authorizetest.FederatedTokens(b, nil)
	for _, name := range []string{"alice", "bob"} {
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), name, map[string]string{"alice": "right", "bob": "other"}[name])
	}
	sealed := authorizetest.FieldValue(t, authorizetest.Body(t, b.Get("/oauth2/logout")), "request")
	r := b.Follow(b.Post("/oauth2/logout", url.Values{"request": {sealed}}))
	authorizetest.WantText(t, authorizetest.Body(t, r), "You’re signed out")
	if requests := p.Requests(providertest.EndSession); len(requests) != 1 || requests[0].Form.Get("id_token_hint") == "" {
		t.Errorf("end-session requests %v", requests)
	}
}

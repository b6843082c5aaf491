package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
)

func sessions(t *testing.T, s *authorize.Server, user string) []session.Info {
	t.Helper()
	list, err := s.Sessions(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestSessionsAreListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b := authorizetest.NewBrowser(t, s)
		id := b.Claims(b.Tokens(nil).IDToken)
		began := time.Now()
		time.Sleep(time.Minute)
		b.Authorize(authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}))
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
		authorizetest.NewBrowser(t, s).SignIn(authorizetest.Request(nil), "bob", "other")
		list := sessions(t, s, "alice")
		if len(list) != 1 || len(sessions(t, s, "")) != 2 || len(sessions(t, s, "nobody")) != 0 {
			t.Fatalf("%d of alice, %d of all", len(list), len(sessions(t, s, "")))
		}
		got := list[0]
		slices.Sort(got.Clients)
		if got.ID != id["sid"] || got.User != "alice" || !got.Since.Equal(began) || !got.SignedInAt.Equal(began.Add(time.Minute)) ||
			!slices.Equal(got.Clients, []string{"app", "confidential"}) || got.Address != "192.0.2.1" {
			t.Errorf("%+v", got)
		}
	})
}

// After a renewal, a session's clients are stored for the session's entire lifetime.
func TestSessionKeepsClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, nil)
		b := authorizetest.NewBrowser(t, s)
		b.SignInAlice(authorizetest.Request(nil))
		time.Sleep(7 * time.Hour)
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}, "client_id": {"strict"}, "code_challenge_method": {"S256"}, "code_challenge": {authorizetest.S256(authorizetest.Verifier)}}), "alice", "right")
		time.Sleep(7 * time.Hour)
		if list := sessions(t, s, "alice"); len(list) != 1 || len(list[0].Clients) != 2 {
			t.Errorf("%+v", list)
		}
	})
}

func TestUserAgentIsCut(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	b := authorizetest.NewBrowser(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("User-Agent", strings.Repeat("a", 10_000))
		s.ServeHTTP(w, r)
	}))
	b.SignInAlice(authorizetest.Request(nil))
	if got := sessions(t, s, "alice")[0].UserAgent; len(got) != 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// An operator can end one session, or all sessions of a user.
func TestSessionsAreEnded(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	var browsers []*authorizetest.Browser
	for range 3 {
		b := authorizetest.NewBrowser(t, s)
		b.SignInAlice(authorizetest.Request(nil))
		browsers = append(browsers, b)
	}
	bob := authorizetest.NewBrowser(t, s)
	bob.SignIn(authorizetest.Request(nil), "bob", "other")
	sid, _ := browsers[0].Claims(authorizetest.TokensWithSession(browsers[0]).IDToken)["sid"].(string)
	if _, err := s.EndSession(t.Context(), sid); err != nil || browsers[0].HasSession() || !browsers[1].HasSession() {
		t.Errorf("one ended: %v", err)
	}
	if _, err := s.EndSession(t.Context(), sid); !errors.Is(err, authorize.ErrNoSession) {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil || browsers[1].HasSession() || browsers[2].HasSession() || !bob.HasSession() {
		t.Errorf("all ended: %v", err)
	}
}

// Sessions that a change of the user's configuration has invalidated are not listed.
func TestEndedSessionsAreNotListed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*authorize.Config){
		"disabled":     func(c *authorize.Config) { c.Users[0].Disabled = true },
		"removed":      func(c *authorize.Config) { c.Users = c.Users[1:] },
		"new password": func(c *authorize.Config) { c.Users[0].PasswordHash = "new" },
	} {
		store := store.NewMemory(0, 0)
		authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store })).SignInAlice(authorizetest.Request(nil))
		after := authorizetest.New(t, func(c *authorize.Config) { c.Store = store; change(c) })
		if list := sessions(t, after, ""); len(list) != 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// If the same user signs in again, the sid remains the same and the secret changes. If another user signs in, the sid changes.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Users[1].PasswordHash = c.Users[0].PasswordHash }))
	first := b.Claims(b.Tokens(nil).IDToken)["sid"]
	old := b.Cookies["__Host-fhir-session"]
	again := b.Claims(b.Tokens(url.Values{"prompt": {"login"}}).IDToken)["sid"]
	if first == nil || again != first || b.Cookies["__Host-fhir-session"] == old {
		t.Errorf("sid %v, then %v", first, again)
	}
	thief := authorizetest.NewBrowser(t, b.Server)
	thief.Cookies["__Host-fhir-session"] = old
	if thief.HasSession() {
		t.Error("the old cookie still signs in")
	}
	b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "right")
	if sid := b.Claims(authorizetest.TokensWithSession(b).IDToken)["sid"]; sid == first {
		t.Error("bob has alice's sid")
	}
}

// Neither the sid alone nor an incomplete cookie is accepted.
func TestIncompleteSessionCookie(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	b.SignInAlice(authorizetest.Request(nil))
	sid, secret, _ := strings.Cut(b.Cookies["__Host-fhir-session"], ".")
	if len(sid) < 43 || len(secret) < 43 {
		t.Errorf("%d and %d characters", len(sid), len(secret))
	}
	for _, cookie := range []string{sid, sid + ".", sid + "." + secret[:42], sid + "." + secret + "A", "." + secret, secret, "." + sid, sid + "." + sid, ""} {
		other := authorizetest.NewBrowser(t, b.Server)
		other.Cookies["__Host-fhir-session"] = cookie
		if other.HasSession() {
			t.Errorf("signed in by %q", cookie)
		}
	}
}

// If the durable store and the keys survive a restart, all sessions, whether started locally or at a provider, and the grants
// bound to them remain valid. A later logout notifies the clients from before the restart.
func TestSessionsOutliveRestart(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	for name, signIn := range map[string]func(*authorizetest.Browser) string{
		"here": func(b *authorizetest.Browser) string { return b.SignInAlice(onlineRequest()).Query().Get("code") },
		"by a provider": func(b *authorizetest.Browser) string {
			return authorizetest.SignInAtProvider(b, onlineRequest()).Query().Get("code")
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, durable := authorizetest.NewLogoutReceiver(t), store.NewMemory(0, 0)
			start := func() *authorize.Server {
				return authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
					authorizetest.AllowRefreshTokens(c)
					c.Store, c.DurableStore = store.NewMemory(0, 0), durable
					c.Clients[0].BackchannelLogoutURI = client.URI
				})
			}
			b := authorizetest.NewBrowser(t, start())
			before := b.RequestTokens(authorizetest.CodeForm(signIn(b), nil))
			b.Server = start()
			if q := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query(); q.Get("code") == "" {
				t.Fatalf("signed out of the browser: %v", q)
			}
			after := b.Refresh(before.RefreshToken, nil)
			if after.RefreshToken == "" || !b.IsTokenValid(after.AccessToken) || !b.IsTokenValid(before.AccessToken) {
				t.Fatalf("the app's tokens ended: %+v", after)
			}
			b.Get("/oauth2/logout?" + url.Values{"id_token_hint": {before.IDToken}}.Encode())
			<-client.Tokens
			if got := b.Refresh(after.RefreshToken, nil); got.Error != "invalid_grant" {
				t.Errorf("after signing out: %+v", got)
			}
		})
	}
}

func onlineRequest() url.Values {
	return authorizetest.Request(url.Values{"scope": {"openid online_access"}})
}

// Requests of signed-in users write nothing to the durable store, because every write delays the response.
func TestSessionsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	writes := 0
	durable := storetest.NewInterceptedStore(func(method, _ string) error {
		if method == "Put" || method == "Add" || method == "Swap" {
			writes++
		}
		return nil
	})
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.DurableStore = durable }))
	b.Tokens(nil)
	signedIn := writes
	for range 3 {
		b.Post("/oauth2/token", authorizetest.CodeForm(authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query().Get("code"), nil))
	}
	if signedIn == 0 || writes != signedIn {
		t.Errorf("%d writes to sign in, %d after it", signedIn, writes-signedIn)
	}
}

// A federated account is stored for the lifetime of its session, even across a restart. A later sign-in does not shorten the
// longer lifetime required by a refresh token.
func TestAccountsOutliveRestart(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	durable := store.NewMemory(0, 0)
	start := func() *authorize.Server {
		return authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			authorizetest.AllowRefreshTokens(c)
			c.Store, c.DurableStore = store.NewMemory(0, 0), durable
		})
	}
	retainedUntil := func() (until time.Time) {
		keys, err := durable.List(t.Context(), "kept-account:")
		if err != nil || len(keys) != 1 {
			t.Fatalf("kept %q, %v", keys, err)
		}
		value, err := durable.Get(t.Context(), keys[0])
		if err != nil {
			t.Fatal(err)
		}
		var account struct{ Until time.Time }
		if err := json.Unmarshal(value, &account); err != nil {
			t.Fatal(err)
		}
		return account.Until
	}
	b := authorizetest.NewBrowser(t, start())
	authorizetest.SignInAtProvider(b, nil)
	b.Server = start()
	if q := authorizetest.Location(t, b.Authorize(authorizetest.Request(nil))).Query(); q.Get("code") == "" {
		t.Errorf("signed out: %v", q)
	}
	session := retainedUntil()
	authorizetest.FederatedTokens(b, authorizetest.WithOfflineAccess(nil))
	if grant := retainedUntil(); grant.Sub(session) < 80*24*time.Hour {
		t.Errorf("retained until %v with a session, until %v with a refresh token", session, grant)
	}
	grant := retainedUntil()
	authorizetest.SignInAtProvider(authorizetest.NewBrowser(t, b.Server), nil)
	if again := retainedUntil(); again.Before(grant) {
		t.Errorf("retained until %v, and after another sign-in until %v", grant, again)
	}
}

const sessionCookie = "__Host-fhir-session"

// damagedSession is a session of alice with an unreadable record.
type damagedSession struct {
	*authorizetest.Browser
	server *authorize.Server
	party  *authorizetest.LogoutReceiver
	sid    string
	tokens authorizetest.TokenResponse
	ends   []audit.Event // audit events of the end of the session
}

func newDamagedSession(t *testing.T, record string) *damagedSession {
	t.Helper()
	d := &damagedSession{party: authorizetest.NewLogoutReceiver(t)}
	durable := store.NewMemory(0, 0)
	d.server = authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.DurableStore = durable
		c.Clients[0].BackchannelLogoutURI = d.party.URI
		c.Audit = func(_ context.Context, e audit.Event) {
			if e.Kind == audit.KindSignOut && e.Err == nil && e.Reason != "back-channel logout delivered" {
				d.ends = append(d.ends, e)
			}
		}
	})
	d.Browser = authorizetest.NewBrowser(t, d.server)
	d.tokens = d.Redeem(d.SignInAlice(onlineRequest()))
	d.sid = d.Claims(d.tokens.IDToken)["sid"].(string)
	if err := durable.Put(t.Context(), "session:"+d.sid, []byte(record), time.Hour); err != nil {
		t.Fatal(err)
	}
	return d
}

// ended reports whether the grants of the app are void.
func (d *damagedSession) ended() bool {
	return !d.IsTokenValid(d.tokens.AccessToken) && d.Refresh(d.tokens.RefreshToken, nil).AccessToken == ""
}

// agree submits the logout confirmation page in r.
func (d *damagedSession) agree(t *testing.T, r *http.Response) {
	d.Post("/oauth2/logout", url.Values{"request": {authorizetest.FieldValue(t, authorizetest.Body(t, r), "request")}})
}

// A session with a malformed record can be ended in every way. The audit event contains the user, if known, and states that the
// record was unreadable.
func TestUnreadableSessionEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(*testing.T, *damagedSession)
		user   string // user in the audit event, if known
		reason string
	}{
		"in its browser, after confirmation": {func(t *testing.T, d *damagedSession) {
			d.agree(t, d.Get("/oauth2/logout"))
		}, "", "signed out in the browser"},
		"in its browser, with its hint": {func(_ *testing.T, d *damagedSession) {
			d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out in the browser"},
		"by its hint alone": {func(t *testing.T, d *damagedSession) {
			authorizetest.NewBrowser(t, d.server).Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out by a logout request with id_token_hint"},
		"by its hint and a cookie that proves nothing": {func(_ *testing.T, d *damagedSession) {
			d.Cookies[sessionCookie] = d.sid + ".x"
			d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken)
		}, "alice", "signed out by a logout request with id_token_hint"},
		"by signing in again": {func(_ *testing.T, d *damagedSession) {
			d.SignInAlice(authorizetest.Request(nil))
		}, "", "replaced by another sign-in in the same browser"},
		"with all of its person, by an operator": {func(t *testing.T, d *damagedSession) {
			if n, err := d.server.EndSessions(t.Context(), "alice"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}, "alice", "ended by an administrator"},
		"by an operator": {func(t *testing.T, d *damagedSession) {
			if n, err := d.server.EndSession(t.Context(), d.sid); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}, "", "ended by an administrator"},
	} {
		for _, record := range []string{"", "{", `{"v":1,"user":"bob","secret":7}`} {
			t.Run(name+", of "+record, func(t *testing.T) {
				t.Parallel()
				d := newDamagedSession(t, record)
				if d.ended() {
					t.Fatal("it has ended already")
				}
				tt.end(t, d)
				if !d.ended() {
					t.Error("the app's tokens are still valid")
				}
				if len(d.ends) != 1 || d.ends[0].User != tt.user || d.ends[0].Reason != tt.reason+"; session record is unreadable" {
					t.Errorf("events %+v", d.ends)
				}
				if claims := d.Claims(<-d.party.Tokens); claims["sid"] != d.sid || claims["sub"] != nil && claims["sub"] != tt.user {
					t.Errorf("logout token claims for the app: %v", claims)
				}
			})
		}
	}
}

// If the record is malformed, the public sid, a cookie made from it, or a cross-site link cannot end the session. Its own
// browser is signed out nevertheless.
func TestUnreadableSessionNeedsItsBrowser(t *testing.T) {
	t.Parallel()
	for name, cookie := range map[string]func(*damagedSession) string{
		"the sid alone":            func(d *damagedSession) string { return d.sid },
		"the sid twice":            func(d *damagedSession) string { return d.sid + "." + d.sid + ".x" },
		"without its root":         func(d *damagedSession) string { return d.sid + strings.Repeat("."+strings.Repeat("A", 43), 2) },
		"of another session":       func(d *damagedSession) string { return d.sid + d.another() },
		"without a secret":         func(d *damagedSession) string { return d.sid + "." + strings.Repeat("A", 43) },
		"its own, by a mere link":  func(d *damagedSession) string { return d.Cookies[sessionCookie] },
		"its own, by another hint": func(d *damagedSession) string { return d.Cookies[sessionCookie] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDamagedSession(t, "{")
			d.Cookies[sessionCookie] = cookie(d)
			target := "/oauth2/logout"
			if strings.HasSuffix(name, "hint") {
				target += "?id_token_hint=" + authorizetest.NewBrowser(t, d.server).Tokens(nil).IDToken
			}
			if r := d.Get(target); r.StatusCode != http.StatusOK {
				t.Errorf("status %d", r.StatusCode)
			}
			if d.ended() || len(d.ends) > 0 {
				t.Errorf("ended: %+v", d.ends)
			}
			if d.HasSession() {
				t.Error("signed in by an unreadable record")
			}
		})
	}
}

// another returns the cookie of another session, without the sid.
func (d *damagedSession) another() string {
	b := authorizetest.NewBrowser(d.T, d.server)
	b.SignInAlice(authorizetest.Request(nil))
	_, proof, _ := strings.Cut(b.Cookies[sessionCookie], ".")
	return "." + proof
}

// If one session has an unreadable record, other users can still end their sessions, and its user can still open the
// account page in another session.
func TestUnreadableSessionBlocksNoOther(t *testing.T) {
	t.Parallel()
	d := newDamagedSession(t, "{")
	bob := authorizetest.NewBrowser(t, d.server)
	bob.SignIn(authorizetest.Request(nil), "bob", "other")
	if n, err := d.server.EndSessions(t.Context(), "bob"); n != 1 || err != nil || bob.HasSession() {
		t.Errorf("bob's: %d, %v", n, err)
	}
	alice := authorizetest.NewBrowser(t, d.server)
	alice.SignInAlice(authorizetest.Request(nil))
	if r := alice.Get("/oauth2/account"); r.StatusCode != http.StatusOK {
		t.Errorf("the account page of its person: %d", r.StatusCode)
	}
	if d.ended() {
		t.Error("it has ended")
	}
}

// A record written by a newer version is not treated as malformed. It remains stored for gateways with that version.
func TestSessionOfLaterVersionDoesNotEnd(t *testing.T) {
	t.Parallel()
	d := newDamagedSession(t, `{"v":2}`)
	if r := d.Get("/oauth2/logout?id_token_hint=" + d.tokens.IDToken); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", r.StatusCode)
	}
	if _, err := d.server.EndSession(t.Context(), d.sid); err == nil || d.ended() {
		t.Errorf("ended: %v", err)
	}
}

// After a password change, a new sign-in in the same browser starts a new session. The previous session and its grants end.
func TestSessionOfAnotherPassword(t *testing.T) {
	t.Parallel()
	memory := store.NewMemory(0, 0)
	server := func(change func(*authorize.Config)) http.Handler {
		return authorizetest.New(t, func(c *authorize.Config) { c.Store = memory; change(c) })
	}
	b := authorizetest.NewBrowser(t, server(func(*authorize.Config) {}))
	signIn := func(password string) any {
		b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", password)
		return b.Claims(authorizetest.TokensWithSession(b).IDToken)["sid"]
	}
	first := signIn("right")
	b.Server = server(func(c *authorize.Config) { c.Users[0].PasswordHash = c.Users[1].PasswordHash })
	if again := signIn("other"); first == nil || again == nil || again == first {
		t.Errorf("sid %v, then %v", first, again)
	}
}

// When a person leaves the browser, it deletes the pages that its Back button would otherwise show to the next person.
func TestBrowserForgetsPages(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leave func(*authorizetest.Browser) *http.Response
		want  string
	}{
		"sign-out": {func(b *authorizetest.Browser) *http.Response {
			sealed := authorizetest.FieldValue(b.T, authorizetest.Body(b.T, b.Get("/oauth2/logout")), "request")
			return b.Post("/oauth2/logout", url.Values{"request": {sealed}})
		}, `"cache"`},
		"another person's sign-in": {func(b *authorizetest.Browser) *http.Response {
			return b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "bob", "other")
		}, `"cache"`},
		"the same person's sign-in": {func(b *authorizetest.Browser) *http.Response {
			return b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			b.SignInAlice(authorizetest.Request(nil))
			authorizetest.Equal(t, tt.leave(b).Header.Get("Clear-Site-Data"), tt.want)
		})
	}
}

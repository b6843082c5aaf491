package authorize_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
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
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := newBrowser(t, s)
		id := b.claims(b.tokens(nil).IDToken)
		began := time.Now()
		time.Sleep(time.Minute)
		b.authorize(request(url.Values{"client_id": {"confidential"}, "redirect_uri": {callback + "?tenant=1"}}))
		b.signIn(request(url.Values{"prompt": {"login"}}), "alice", "right")
		newBrowser(t, s).signIn(request(nil), "bob", "other")
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

// A session that is renewed knows its clients for as long as it lasts.
func TestSessionKeepsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, nil)
		b := newBrowser(t, s)
		b.answer(request(nil))
		time.Sleep(7 * time.Hour)
		b.signIn(request(url.Values{"prompt": {"login"}, "client_id": {"strict"}, "code_challenge_method": {"S256"}, "code_challenge": {s256(verifier)}}), "alice", "right")
		time.Sleep(7 * time.Hour)
		if list := sessions(t, s, "alice"); len(list) != 1 || len(list[0].Clients) != 2 {
			t.Errorf("%+v", list)
		}
	})
}

func TestUserAgentIsCut(t *testing.T) {
	s := newServer(t, nil)
	b := newBrowser(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("User-Agent", strings.Repeat("a", 10_000))
		s.ServeHTTP(w, r)
	}))
	b.answer(request(nil))
	if got := sessions(t, s, "alice")[0].UserAgent; len(got) != 200 {
		t.Errorf("%d bytes", len(got))
	}
}

// Sessions are ended from here, one or all of a person's.
func TestSessionsAreEnded(t *testing.T) {
	s := newServer(t, nil)
	var browsers []*browser
	for range 3 {
		b := newBrowser(t, s)
		b.answer(request(nil))
		browsers = append(browsers, b)
	}
	bob := newBrowser(t, s)
	bob.signIn(request(nil), "bob", "other")
	sid, _ := browsers[0].claims(browsers[0].moreTokens(t).IDToken)["sid"].(string)
	if _, err := s.EndSession(t.Context(), sid); err != nil || browsers[0].signedIn() || !browsers[1].signedIn() {
		t.Errorf("one ended: %v", err)
	}
	if _, err := s.EndSession(t.Context(), sid); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := s.EndSessions(t.Context(), "alice"); err != nil || browsers[1].signedIn() || browsers[2].signedIn() || !bob.signedIn() {
		t.Errorf("all ended: %v", err)
	}
}

// moreTokens are tokens of the session that is there already.
func (b *browser) moreTokens(t *testing.T) tokenAnswer {
	t.Helper()
	code := location(t, b.authorize(request(nil))).Query().Get("code")
	return decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(code, nil)))
}

// Sessions that their user's configuration ended are not shown as alive.
func TestEndedSessionsAreNotListed(t *testing.T) {
	for name, change := range map[string]func(*authorize.Config){
		"disabled":     func(c *authorize.Config) { c.Users[0].Disabled = true },
		"removed":      func(c *authorize.Config) { c.Users = c.Users[1:] },
		"new password": func(c *authorize.Config) { c.Users[0].PasswordHash = "new" },
	} {
		store := store.NewMemory(0, 0)
		newBrowser(t, newServer(t, func(c *authorize.Config) { c.Store = store })).answer(request(nil))
		after := newServer(t, func(c *authorize.Config) { c.Store = store; change(c) })
		if list := sessions(t, after, ""); len(list) != 0 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}

// Who signs in again goes on under the same sid and another secret; who signs in
// in another's place under another sid.
func TestSignInAgain(t *testing.T) {
	b := newBrowser(t, newServer(t, func(c *authorize.Config) { c.Users[1].PasswordHash = c.Users[0].PasswordHash }))
	first := b.claims(b.tokens(nil).IDToken)["sid"]
	old := b.cookies["__Host-fhir-session"]
	again := b.claims(b.tokens(url.Values{"prompt": {"login"}}).IDToken)["sid"]
	if first == nil || again != first || b.cookies["__Host-fhir-session"] == old {
		t.Errorf("sid %v, then %v", first, again)
	}
	thief := newBrowser(t, b.server)
	thief.cookies["__Host-fhir-session"] = old
	if thief.signedIn() {
		t.Error("the old cookie still signs in")
	}
	b.signIn(request(url.Values{"prompt": {"login"}}), "bob", "right")
	if sid := b.claims(b.moreTokens(t).IDToken)["sid"]; sid == first {
		t.Error("bob has alice's sid")
	}
}

// The sid is public, and signs nobody in; nor does a cookie in part.
func TestSessionCookieIsWhole(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	b.answer(request(nil))
	sid, secret, _ := strings.Cut(b.cookies["__Host-fhir-session"], ".")
	if len(sid) < 43 || len(secret) < 43 {
		t.Errorf("%d and %d characters", len(sid), len(secret))
	}
	for _, cookie := range []string{sid, sid + ".", sid + "." + secret[:42], sid + "." + secret + "A", "." + secret, secret, "." + sid, sid + "." + sid, ""} {
		other := newBrowser(t, b.server)
		other.cookies["__Host-fhir-session"] = cookie
		if other.signedIn() {
			t.Errorf("signed in by %q", cookie)
		}
	}
}

// A restart, of which the durable store and the keys are left, signs nobody out: not at
// their browser, not the apps that may go on for as long as the person is signed in, and
// not who came by a provider. Signing out after it is told to the apps from before.
func TestSessionsOutliveRestart(t *testing.T) {
	p := authorizetest.Start(t)
	for name, signIn := range map[string]func(*browser) string{
		"here":          func(b *browser) string { return b.answer(online()).Query().Get("code") },
		"by a provider": func(b *browser) string { return b.federate(online()).Query().Get("code") },
	} {
		t.Run(name, func(t *testing.T) {
			client, durable := newParty(t), store.NewMemory(0, 0)
			start := func() *authorize.Server {
				return federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
					refreshing(c)
					c.Store, c.Durable = store.NewMemory(0, 0), durable
					c.Clients[0].BackchannelLogoutURI = client.uri
				})
			}
			b := newBrowser(t, start())
			before := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(signIn(b), nil)))
			b.server = start()
			if q := location(t, b.authorize(request(nil))).Query(); q.Get("code") == "" {
				t.Fatalf("signed out of the browser: %v", q)
			}
			after := b.refresh(before.Refresh, nil)
			if after.Refresh == "" || !b.works(after.AccessToken) || !b.works(before.AccessToken) {
				t.Fatalf("the app's tokens ended: %+v", after)
			}
			b.get("/oauth2/logout?" + url.Values{"id_token_hint": {before.IDToken}}.Encode())
			<-client.tokens
			if got := b.refresh(after.Refresh, nil); got.Error != "invalid_grant" {
				t.Errorf("after signing out: %+v", got)
			}
		})
	}
}

func online() url.Values { return request(url.Values{"scope": {"openid online_access"}}) }

// counted is a store that counts its writes.
type counted struct {
	store.Store
	writes int
}

func (c *counted) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	c.writes++
	return c.Store.Put(ctx, key, value, ttl)
}

func (c *counted) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	c.writes++
	return c.Store.Add(ctx, key, value, ttl)
}

func (c *counted) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	c.writes++
	return c.Store.Swap(ctx, key, old, value, ttl)
}

// Each write to the durable store is waited for. Who is signed in causes none, however
// often an app asks.
func TestSessionsAreWrittenOnce(t *testing.T) {
	durable := &counted{Store: store.NewMemory(0, 0)}
	b := newBrowser(t, newServer(t, func(c *authorize.Config) { c.Durable = durable }))
	b.tokens(nil)
	signedIn := durable.writes
	for range 3 {
		b.post("/oauth2/token", codeForm(location(t, b.authorize(request(nil))).Query().Get("code"), nil))
	}
	if signedIn == 0 || durable.writes != signedIn {
		t.Errorf("%d writes to sign in, %d after it", signedIn, durable.writes-signedIn)
	}
}

// What a provider said of a person outlives a restart for as long as their session, and
// a later sign-in does not shorten that for their refresh tokens.
func TestAccountsOutliveRestart(t *testing.T) {
	p := authorizetest.Start(t)
	durable := store.NewMemory(0, 0)
	start := func() *authorize.Server {
		return federated(t, p, func(_ *people.IdentityProvider, c *authorize.Config) {
			refreshing(c)
			c.Store, c.Durable = store.NewMemory(0, 0), durable
		})
	}
	kept := func() (until time.Time) {
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
	b := newBrowser(t, start())
	b.federate(nil)
	b.server = start()
	if q := location(t, b.authorize(request(nil))).Query(); q.Get("code") == "" {
		t.Errorf("signed out: %v", q)
	}
	session := kept()
	b.federatedTokens(offline(nil))
	if grant := kept(); grant.Sub(session) < 80*24*time.Hour {
		t.Errorf("kept until %v with a session, until %v with a refresh token", session, grant)
	}
	grant := kept()
	newBrowser(t, b.server).federate(nil)
	if again := kept(); again.Before(grant) {
		t.Errorf("kept until %v, and after another sign-in until %v", grant, again)
	}
}

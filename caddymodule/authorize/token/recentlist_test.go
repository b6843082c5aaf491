package token_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A user's codes are limited in number and do not displace other users' entries. The latest codes
// are valid, and revoked codes stay revoked.
func TestCodesOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(700, 0) }))
		stolen := b.Code(nil)
		access := authorizetest.Decode[authorizetest.TokenResponse](t, b.Post("/oauth2/token", authorizetest.CodeForm(stolen, nil))).AccessToken
		b.Post("/oauth2/token", authorizetest.CodeForm(stolen, nil))
		var first, last string
		for i := range 500 {
			time.Sleep(100 * time.Millisecond)
			last = b.CodeWithSession(nil)
			if i%2 == 0 {
				if got := b.RequestTokens(authorizetest.CodeForm(last, nil)); got.AccessToken == "" {
					t.Fatalf("code %d: %+v", i, got)
				}
			} else if first == "" {
				first = last
			}
		}
		if got := b.RequestTokens(authorizetest.CodeForm(first, nil)); got.Error != "invalid_grant" {
			t.Errorf("the first code: %+v", got)
		}
		if got := b.RequestTokens(authorizetest.CodeForm(last, nil)); got.AccessToken == "" {
			t.Errorf("the last code: %+v", got)
		}
		if b.IsTokenValid(access) {
			t.Error("a revoked token is valid again")
		}
		authorizetest.NewBrowser(t, b.Server).SignInAlice(authorizetest.Request(nil))
	})
}

// A user's grants with refresh tokens are limited in number.
func TestFamiliesOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(400, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = durable }))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	first := b.Tokens(offline).RefreshToken
	var last string
	for i := range 500 {
		answer := b.RequestTokens(authorizetest.CodeForm(b.CodeWithSession(offline), nil))
		if last = answer.RefreshToken; last == "" {
			t.Fatalf("grant %d: %+v", i, answer)
		}
	}
	authorizetest.CheckTokensInvalid(b, first)
	if got := b.Refresh(last, nil); got.AccessToken == "" {
		t.Errorf("the last refresh token: %+v", got)
	}
}

// Expired grants are not included in the limit. Otherwise, short-lived grants would displace a long-lived one.
func TestEndedFamiliesDoNotCount(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	lasting := b.Tokens(offline).RefreshToken
	for range 250 {
		answer := b.RequestTokens(authorizetest.CodeForm(b.CodeWithSession(offline), nil))
		b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.RefreshToken}})
	}
	if got := b.Refresh(lasting, nil); got.AccessToken == "" {
		t.Errorf("the oldest refresh token: %+v", got)
	}
}

// contendedStore is a store in which another process wins the first write to each list.
type contendedStore struct {
	store.Store
	lost map[string]bool // keys with a lost first write
}

func (c *contendedStore) Do(ctx context.Context, calls ...*store.Call) error {
	for _, call := range calls {
		if store.KindOf(call.Key) != "apps" || !call.StoresValue() {
			continue
		}
		if c.lost[call.Key] = !c.lost[call.Key]; c.lost[call.Key] {
			call.Err = store.ErrChanged
			return call.Err
		}
	}
	return c.Store.Do(ctx, calls...)
}

// Concurrent grants of one user are all valid.
func TestGrantsOfOnePersonAtOnce(t *testing.T) {
	t.Parallel()
	store := &contendedStore{store.NewMemory(0, 0), map[string]bool{}}
	server := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.Store = store })
	for range 2 { // first with a new list, then with an existing list
		b := authorizetest.NewBrowser(t, server)
		refresh := b.Tokens(url.Values{"scope": {"user/*.rs offline_access"}}).RefreshToken
		if got := b.Refresh(refresh, nil); got.AccessToken == "" {
			t.Errorf("%+v", got)
		}
	}
	if len(store.lost) != 1 {
		t.Errorf("contended for %v alone", store.lost)
	}
}

// A user's sessions are limited in number. A sign-in in another browser displaces the oldest session.
func TestSessionsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(2600, 0) })
	first := authorizetest.NewBrowser(t, server)
	first.SignInAlice(authorizetest.Request(nil))
	var last *authorizetest.Browser
	for range 1200 {
		last = authorizetest.NewBrowser(t, server)
		if got := last.SignInAlice(authorizetest.Request(nil)).Query(); got.Get("code") == "" {
			t.Fatal(got)
		}
	}
	for name, tt := range map[string]struct {
		*authorizetest.Browser
		signedIn bool
	}{"the first": {first, false}, "the last": {last, true}} {
		if got := authorizetest.Location(t, tt.Authorize(authorizetest.Request(nil))).Path != "/oauth2/login"; got != tt.signedIn {
			t.Errorf("%s browser is signed in: %t", name, got)
		}
	}
	authorizetest.NewBrowser(t, server).SignInAlice(authorizetest.Request(nil))
	if sessions, err := server.Sessions(t.Context(), "alice"); err != nil || len(sessions) > 1000 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

// However often a user revokes grants, the number of store entries is limited, revoked tokens stay
// revoked, and newer tokens are valid.
func TestRevocationsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	grant := authorizetest.Request(authorizetest.WithOfflineAccess(nil))
	for _, tt := range []struct {
		name  string
		bound int
		end   func(b *authorizetest.Browser) authorizetest.TokenResponse // returns the revoked tokens
	}{
		{"revoked access tokens", 200, func(b *authorizetest.Browser) authorizetest.TokenResponse {
			answer := b.Redeem(authorizetest.Location(b.T, b.Authorize(authorizetest.Request(nil))))
			b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.AccessToken}})
			return answer
		}},
		{"revoked refresh tokens", 200, func(b *authorizetest.Browser) authorizetest.TokenResponse {
			answer := b.Redeem(authorizetest.Location(b.T, b.Authorize(grant)))
			b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.RefreshToken}})
			return answer
		}},
		{"codes used twice", 200, func(b *authorizetest.Browser) authorizetest.TokenResponse {
			to := authorizetest.Location(b.T, b.Authorize(grant))
			answer := b.Redeem(to)
			b.Redeem(to)
			return answer
		}},
		{"sessions", 1000, func(b *authorizetest.Browser) authorizetest.TokenResponse {
			other := authorizetest.NewBrowser(b.T, b.Server)
			answer := b.Redeem(authorizetest.Location(b.T, other.SignIn(authorizetest.Request(nil), "alice", "right")))
			other.Post("/oauth2/logout", url.Values{"request": {authorizetest.FieldValue(b.T, authorizetest.Body(b.T, other.Get("/oauth2/logout")), "request")}})
			return answer
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store, durable := store.NewMemory(0, 0), store.NewMemory(0, 0)
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
				authorizetest.AllowRefreshTokens(c)
				c.Store, c.DurableStore = store, durable
				c.Clients[0].IDTokenAlgorithm = "ES256" // fast to sign
			}))
			lasting := b.Redeem(authorizetest.Location(t, b.SignIn(grant, "alice", "right")))
			older := authorizetest.Location(t, b.Authorize(grant)) // an unredeemed code
			first := tt.end(b)
			var last authorizetest.TokenResponse
			for range tt.bound + 20 {
				last = tt.end(b)
			}
			const cutoffs = 2
			if inMemory, inDurable := countRevocations(t, store), countRevocations(t, durable); inMemory > tt.bound+cutoffs || inDurable > tt.bound+cutoffs {
				t.Errorf("%d revocations in memory, %d in the durable store", inMemory, inDurable)
			}
			if b.IsTokenValid(first.AccessToken) || b.IsTokenValid(last.AccessToken) {
				t.Error("a revoked token is valid")
			}
			if b.Redeem(older).AccessToken != "" {
				t.Error("a code older than all stored revocations is valid")
			}
			newer := b.Redeem(authorizetest.Location(t, authorizetest.NewBrowser(t, b.Server).SignIn(grant, "alice", "right")))
			if !b.IsTokenValid(newer.AccessToken) || !b.IsTokenValid(b.Refresh(lasting.RefreshToken, nil).AccessToken) {
				t.Error("a newer token or an older refresh token is invalid")
			}
		})
	}
}

func countRevocations(t *testing.T, store store.Store) (n int) {
	t.Helper()
	keys, err := store.List(t.Context(), "")
	for _, key := range keys {
		value, _ := store.Get(t.Context(), key)
		if strings.HasPrefix(key, "revoked:") || strings.HasPrefix(key, "cutoff:") || string(value) == "revoked" {
			n++
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// interruptedStore is a store that runs a function once, before or after a certain call.
type interruptedStore struct {
	store.Store
	before, after string // call, as the method, a space and a prefix of the key
	happens       func()
}

func (m *interruptedStore) once(place *string, method, key string) {
	if *place != "" && strings.HasPrefix(method+" "+key, *place) {
		*place = ""
		m.happens()
	}
}

func (m *interruptedStore) Get(ctx context.Context, key string) ([]byte, error) {
	m.once(&m.before, "Get", key)
	value, err := m.Store.Get(ctx, key)
	m.once(&m.after, "Get", key)
	return value, err
}

func (m *interruptedStore) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	m.once(&m.before, "Add", key)
	return m.Store.Add(ctx, key, value, ttl)
}

func (m *interruptedStore) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	m.once(&m.before, "Put", key)
	return m.Store.Put(ctx, key, value, ttl)
}

func (m *interruptedStore) Do(ctx context.Context, calls ...*store.Call) error {
	err := m.Store.Do(ctx, calls...)
	for _, c := range calls {
		m.once(&m.after, c.Op.String(), c.Key)
	}
	return err
}

// While all of a user's grants are revoked, a concurrent request of a session does not get a grant that survives.
func TestNoGrantDuringRevocation(t *testing.T) {
	t.Parallel()
	store := &interruptedStore{Store: store.NewMemory(0, 0)}
	s := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.Store = store })
	b := authorizetest.NewBrowser(t, s)
	b.Tokens(authorizetest.WithOfflineAccess(nil))
	var got authorizetest.TokenResponse
	store.happens = func() {
		code := authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.WithOfflineAccess(nil)))).Query().Get("code")
		got = b.RequestTokens(authorizetest.CodeForm(code, nil))
	}
	store.after = "Get families:" // the families to delete have been read
	if _, err := s.RevokeGrants(t.Context(), "alice", ""); err != nil || store.after != "" {
		t.Fatalf("error %v, or nothing happened", err)
	}
	if b.IsTokenValid(got.AccessToken) || b.Refresh(got.RefreshToken, nil).AccessToken != "" {
		t.Error("the app's tokens are still valid")
	}
}

// A session that starts during the revocation is ended too, and its grants are void.
func TestSessionStartsDuringRevocation(t *testing.T) {
	t.Parallel()
	store := &interruptedStore{Store: store.NewMemory(0, 0)}
	s := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.Store = store })
	b, code := authorizetest.NewBrowser(t, s), ""
	store.happens = func() { code = b.Code(nil) }
	store.after = "Get sessions:"
	if got, err := s.RevokeGrants(t.Context(), "alice", ""); err != nil || store.after != "" || got.Sessions != 1 {
		t.Fatalf("%+v, %v, or nothing happened", got, err)
	}
	if tokens := b.RequestTokens(authorizetest.CodeForm(code, nil)); tokens.AccessToken != "" || b.HasSession() {
		t.Errorf("tokens %t, signed in %t", tokens.AccessToken != "", b.HasSession())
	}
}

// If the session ends during a request, the request gets no grant.
func TestSessionEndsDuringARequest(t *testing.T) {
	t.Parallel()
	for _, responseType := range []string{"code", "token"} {
		store := &interruptedStore{Store: store.NewMemory(0, 0)}
		s := authorizetest.New(t, func(c *authorize.Config) { c.Store = store; c.Clients[0].Consent = client.ConsentRequired })
		b := authorizetest.NewBrowser(t, s)
		b.Allow(b.SignIn(authorizetest.Request(nil), "alice", "right"), "*")
		store.happens = func() {
			if n, err := s.EndSessions(t.Context(), "alice"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		store.before = "Get consent:"
		to := authorizetest.Location(t, b.Authorize(authorizetest.Request(url.Values{"response_type": {responseType}})))
		if store.before != "" || to.Query().Get("error") != "login_required" || to.Fragment != "" {
			t.Errorf("%s: sent to %s", responseType, to)
		}
	}
}

// After two concurrent revocations, the later cutoff applies, regardless of the write order.
func TestConcurrentRevocations(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Add", "Put"} {
		synctest.Test(t, func(t *testing.T) {
			store := &interruptedStore{Store: store.NewMemory(0, 0)}
			s := authorizetest.New(t, func(c *authorize.Config) { c.Store = store })
			end := func() {
				if _, err := s.RevokeGrants(t.Context(), "", "app"); err != nil {
					t.Error(err)
				}
			}
			var between string
			store.happens = func() {
				time.Sleep(time.Second)
				between = authorizetest.NewBrowser(t, s).Tokens(nil).AccessToken
				time.Sleep(time.Second)
				end()
			}
			store.before = call + " cutoff:client:"
			if end(); authorizetest.NewBrowser(t, s).IsTokenValid(between) {
				t.Error("a token works that was given before the later one")
			}
		})
	}
}

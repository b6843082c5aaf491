package token_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// meanwhile is a store in which something happens once, before or after a call.
type meanwhile struct {
	store.Store
	before, after string // the method, and the beginning of the key
	happens       func()
}

func (m *meanwhile) once(place *string, method, key string) {
	if *place != "" && strings.HasPrefix(method+" "+key, *place) {
		*place = ""
		m.happens()
	}
}

func (m *meanwhile) Get(ctx context.Context, key string) ([]byte, error) {
	m.once(&m.before, "Get", key)
	return m.Store.Get(ctx, key)
}

func (m *meanwhile) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	m.once(&m.before, "Add", key)
	return m.Store.Add(ctx, key, value, ttl)
}

func (m *meanwhile) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	m.once(&m.before, "Put", key)
	return m.Store.Put(ctx, key, value, ttl)
}

func (m *meanwhile) List(ctx context.Context, prefix string) ([]string, error) {
	keys, err := m.Store.List(ctx, prefix)
	m.once(&m.after, "List", prefix)
	return keys, err
}

// While everything of a person is ended, whoever has a session of theirs gets nothing by
// it that outlives the ending.
func TestSessionGivesNothingWhileItIsEnded(t *testing.T) {
	t.Parallel()
	store := &meanwhile{Store: store.NewMemory(0, 0)}
	s := servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Store = store })
	b := servertest.NewBrowser(t, s)
	b.Tokens(servertest.OfflineAccess(nil))
	var got servertest.TokenResponse
	store.happens = func() {
		code := servertest.Location(t, b.Authorize(servertest.Request(servertest.OfflineAccess(nil)))).Query().Get("code")
		got = b.RequestTokens(servertest.CodeForm(code, nil))
	}
	store.after = "List refresh:" // those that are to be deleted are known
	if _, err := s.RevokeGrants(t.Context(), "alice", ""); err != nil || store.after != "" {
		t.Fatalf("error %v, or nothing happened", err)
	}
	if b.TokenWorks(got.AccessToken) || b.Refresh(got.Refresh, nil).AccessToken != "" {
		t.Error("it goes on with what it got")
	}
}

// A session that begins while the others are ended goes no further than what it gave.
func TestSessionBeginsDuringAnEnding(t *testing.T) {
	t.Parallel()
	store := &meanwhile{Store: store.NewMemory(0, 0)}
	s := servertest.New(t, func(c *authorize.Config) { servertest.Refreshing(c); c.Store = store })
	b, code := servertest.NewBrowser(t, s), ""
	store.happens = func() { code = b.Code(nil) }
	store.after = "List session:"
	if got, err := s.RevokeGrants(t.Context(), "alice", ""); err != nil || store.after != "" || got.Sessions != 1 {
		t.Fatalf("%+v, %v, or nothing happened", got, err)
	}
	if given := b.RequestTokens(servertest.CodeForm(code, nil)); given.AccessToken != "" || b.SignedIn() {
		t.Errorf("tokens %t, signed in %t", given.AccessToken != "", b.SignedIn())
	}
}

// A request that began in a session, and is answered when that is over, gives nothing.
func TestSessionEndsDuringARequest(t *testing.T) {
	t.Parallel()
	for _, responseType := range []string{"code", "token"} {
		store := &meanwhile{Store: store.NewMemory(0, 0)}
		s := servertest.New(t, func(c *authorize.Config) { c.Store = store; c.Clients[0].Consent = client.ConsentRequired })
		b := servertest.NewBrowser(t, s)
		b.Allow(b.SignIn(servertest.Request(nil), "alice", "right"), "*")
		store.happens = func() {
			if n, err := s.EndSessions(t.Context(), "alice"); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		store.before = "Get consent:"
		to := servertest.Location(t, b.Authorize(servertest.Request(url.Values{"response_type": {responseType}})))
		if store.before != "" || to.Query().Get("error") != "login_required" || to.Fragment != "" {
			t.Errorf("%s: sent to %s", responseType, to)
		}
	}
}

// Of two endings at the same time the later counts, whichever is stored first.
func TestTwoEndingsAtOnce(t *testing.T) {
	t.Parallel()
	for _, call := range []string{"Add", "Put"} {
		synctest.Test(t, func(t *testing.T) {
			store := &meanwhile{Store: store.NewMemory(0, 0)}
			s := servertest.New(t, func(c *authorize.Config) { c.Store = store })
			end := func() {
				if _, err := s.RevokeGrants(t.Context(), "", "app"); err != nil {
					t.Error(err)
				}
			}
			var between string
			store.happens = func() {
				time.Sleep(time.Second)
				between = servertest.NewBrowser(t, s).Tokens(nil).AccessToken
				time.Sleep(time.Second)
				end()
			}
			store.before = call + " cutoff:client:"
			if end(); servertest.NewBrowser(t, s).TokenWorks(between) {
				t.Error("a token works that was given before the later one")
			}
		})
	}
}

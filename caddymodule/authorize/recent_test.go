package authorize_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// another is a code of a request by whoever is signed in.
func (b *browser) another(change url.Values) string {
	b.t.Helper()
	return location(b.t, b.authorize(request(change))).Query().Get("code")
}

// However many codes one person asks for, exchanged or not, there is room for others;
// the latest count, and what was revoked stays so.
func TestCodesOfOnePersonAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBrowser(t, newServer(t, func(c *authorize.Config) { c.Store = store.NewMemory(700, 0) }))
		stolen := b.code(nil)
		access := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(stolen, nil))).AccessToken
		b.post("/oauth2/token", codeForm(stolen, nil))
		var first, last string
		for i := range 500 {
			time.Sleep(100 * time.Millisecond)
			last = b.another(nil)
			if i%2 == 0 {
				if got := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(last, nil))); got.AccessToken == "" {
					t.Fatalf("code %d: %+v", i, got)
				}
			} else if first == "" {
				first = last
			}
		}
		if got := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(first, nil))); got.Error != "invalid_grant" {
			t.Errorf("the first code: %+v", got)
		}
		if got := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(last, nil))); got.AccessToken == "" {
			t.Errorf("the last code: %+v", got)
		}
		if b.works(access) {
			t.Error("what was revoked works again")
		}
		newBrowser(t, b.server).answer(request(nil))
	})
}

// So it is with the grants that can be refreshed.
func TestFamiliesOfOnePersonAreBounded(t *testing.T) {
	durable := store.NewMemory(400, 0)
	b := newBrowser(t, newServer(t, func(c *authorize.Config) { refreshing(c); c.Durable = durable }))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	first := b.tokens(offline).Refresh
	var last string
	for i := range 500 {
		answer := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(b.another(offline), nil)))
		if last = answer.Refresh; last == "" {
			t.Fatalf("grant %d: %+v", i, answer)
		}
	}
	b.dead(first)
	if got := b.refresh(last, nil); got.AccessToken == "" {
		t.Errorf("the last refresh token: %+v", got)
	}
}

// Grants that ended do not count, or those of each day would end one that lasts.
func TestEndedFamiliesDoNotCount(t *testing.T) {
	b := newBrowser(t, newServer(t, refreshing))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	lasting := b.tokens(offline).Refresh
	for range 250 {
		answer := decode[tokenAnswer](t, b.post("/oauth2/token", codeForm(b.another(offline), nil)))
		b.post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.Refresh}})
	}
	if got := b.refresh(lasting, nil); got.AccessToken == "" {
		t.Errorf("the oldest refresh token: %+v", got)
	}
}

// contended is a store in which another process is faster with each list, once at a
// time.
type contended struct {
	store.Store
	lost map[string]bool // by key
}

func (c *contended) loses(key string) bool {
	kind, _, _ := strings.Cut(key, ":")
	if !slices.Contains([]string{"families", "sessions"}, kind) {
		return false
	}
	c.lost[key] = !c.lost[key]
	return c.lost[key]
}

func (c *contended) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if c.loses(key) {
		return store.ErrExists
	}
	return c.Store.Add(ctx, key, value, ttl)
}

func (c *contended) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	if c.loses(key) {
		return store.ErrChanged
	}
	return c.Store.Swap(ctx, key, old, value, ttl)
}

// What one person is given at one moment in many places is all good.
func TestGrantsOfOnePersonAtOnce(t *testing.T) {
	store := &contended{store.NewMemory(0, 0), map[string]bool{}}
	server := newServer(t, func(c *authorize.Config) { refreshing(c); c.Store = store })
	for range 2 { // the lists are new, and not
		b := newBrowser(t, server)
		refresh := b.tokens(url.Values{"scope": {"user/*.rs offline_access"}}).Refresh
		if got := b.refresh(refresh, nil); got.AccessToken == "" {
			t.Errorf("%+v", got)
		}
	}
	if len(store.lost) != 2 {
		t.Errorf("contended for %v alone", store.lost)
	}
}

// And with sessions, which another browser makes.
func TestSessionsOfOnePersonAreBounded(t *testing.T) {
	server := newServer(t, func(c *authorize.Config) { c.Store = store.NewMemory(4000, 0) })
	first := newBrowser(t, server)
	first.answer(request(nil))
	var last *browser
	for range 2000 {
		last = newBrowser(t, server)
		if got := last.answer(request(nil)).Query(); got.Get("code") == "" {
			t.Fatal(got)
		}
	}
	for name, tt := range map[string]struct {
		*browser
		signedIn bool
	}{"the first": {first, false}, "the last": {last, true}} {
		if got := location(t, tt.authorize(request(nil))).Path != "/oauth2/login"; got != tt.signedIn {
			t.Errorf("%s browser is signed in: %t", name, got)
		}
	}
	newBrowser(t, server).answer(request(nil))
	if sessions, err := server.Sessions(t.Context(), "alice"); err != nil || len(sessions) > 1000 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

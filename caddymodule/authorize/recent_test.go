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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// However many codes one person asks for, exchanged or not, there is room for others;
// the latest count, and what was revoked stays so.
func TestCodesOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(700, 0) }))
		stolen := b.Code(nil)
		access := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(stolen, nil))).AccessToken
		b.Post("/oauth2/token", servertest.CodeForm(stolen, nil))
		var first, last string
		for i := range 500 {
			time.Sleep(100 * time.Millisecond)
			last = b.CodeOfSession(nil)
			if i%2 == 0 {
				if got := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(last, nil))); got.AccessToken == "" {
					t.Fatalf("code %d: %+v", i, got)
				}
			} else if first == "" {
				first = last
			}
		}
		if got := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(first, nil))); got.Error != "invalid_grant" {
			t.Errorf("the first code: %+v", got)
		}
		if got := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(last, nil))); got.AccessToken == "" {
			t.Errorf("the last code: %+v", got)
		}
		if b.TokenWorks(access) {
			t.Error("what was revoked works again")
		}
		servertest.NewBrowser(t, b.Server).Answer(servertest.Request(nil))
	})
}

// So it is with the grants that can be refreshed.
func TestFamiliesOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(400, 0)
	b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) { refreshing(c); c.Durable = durable }))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	first := b.Tokens(offline).Refresh
	var last string
	for i := range 500 {
		answer := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(b.CodeOfSession(offline), nil)))
		if last = answer.Refresh; last == "" {
			t.Fatalf("grant %d: %+v", i, answer)
		}
	}
	b.CheckDead(first)
	if got := b.Refresh(last, nil); got.AccessToken == "" {
		t.Errorf("the last refresh token: %+v", got)
	}
}

// Grants that ended do not count, or those of each day would end one that lasts.
func TestEndedFamiliesDoNotCount(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, refreshing))
	offline := url.Values{"scope": {"user/*.rs offline_access"}}
	lasting := b.Tokens(offline).Refresh
	for range 250 {
		answer := servertest.Decode[servertest.TokenResponse](t, b.Post("/oauth2/token", servertest.CodeForm(b.CodeOfSession(offline), nil)))
		b.Post("/oauth2/revoke", url.Values{"client_id": {"app"}, "token": {answer.Refresh}})
	}
	if got := b.Refresh(lasting, nil); got.AccessToken == "" {
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
	t.Parallel()
	store := &contended{store.NewMemory(0, 0), map[string]bool{}}
	server := servertest.New(t, func(c *authorize.Config) { refreshing(c); c.Store = store })
	for range 2 { // the lists are new, and not
		b := servertest.NewBrowser(t, server)
		refresh := b.Tokens(url.Values{"scope": {"user/*.rs offline_access"}}).Refresh
		if got := b.Refresh(refresh, nil); got.AccessToken == "" {
			t.Errorf("%+v", got)
		}
	}
	if len(store.lost) != 2 {
		t.Errorf("contended for %v alone", store.lost)
	}
}

// And with sessions, which another browser makes.
func TestSessionsOfOnePersonAreBounded(t *testing.T) {
	t.Parallel()
	server := servertest.New(t, func(c *authorize.Config) { c.Store = store.NewMemory(4000, 0) })
	first := servertest.NewBrowser(t, server)
	first.Answer(servertest.Request(nil))
	var last *servertest.Browser
	for range 2000 {
		last = servertest.NewBrowser(t, server)
		if got := last.Answer(servertest.Request(nil)).Query(); got.Get("code") == "" {
			t.Fatal(got)
		}
	}
	for name, tt := range map[string]struct {
		*servertest.Browser
		signedIn bool
	}{"the first": {first, false}, "the last": {last, true}} {
		if got := servertest.Location(t, tt.Authorize(servertest.Request(nil))).Path != "/oauth2/login"; got != tt.signedIn {
			t.Errorf("%s browser is signed in: %t", name, got)
		}
	}
	servertest.NewBrowser(t, server).Answer(servertest.Request(nil))
	if sessions, err := server.Sessions(t.Context(), "alice"); err != nil || len(sessions) > 1000 {
		t.Errorf("%d sessions, %v", len(sessions), err)
	}
}

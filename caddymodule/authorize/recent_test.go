package authorize_test

import (
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
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
		b := newBrowser(t, newServer(t, func(c *authorize.Config) { c.Store = authorize.NewMemoryStore(700, 0) }))
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
	durable := authorize.NewMemoryStore(400, 0)
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

// Of what one person is given at one moment, in many browsers, nothing is lost.
func TestGrantsOfOnePersonAtOnce(t *testing.T) {
	server := newServer(t, refreshing)
	var all sync.WaitGroup
	for range 40 {
		b := newBrowser(t, server)
		all.Go(func() {
			refresh := b.tokens(url.Values{"scope": {"user/*.rs offline_access"}}).Refresh
			if got := b.refresh(refresh, nil); got.AccessToken == "" {
				t.Errorf("%+v", got)
			}
		})
	}
	all.Wait()
}

// And with sessions, which another browser makes.
func TestSessionsOfOnePersonAreBounded(t *testing.T) {
	server := newServer(t, func(c *authorize.Config) { c.Store = authorize.NewMemoryStore(4000, 0) })
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

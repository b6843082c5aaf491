package authorize_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
)

// What one person does again and again takes a bounded number of entries, and what nobody reads
// makes none of them longer.
func TestOnePersonDoesNotFillTheStore(t *testing.T) {
	t.Parallel()
	junk := url.Values{"junk": {strings.Repeat("&", 2000)}}
	for name, tt := range map[string]struct {
		most int // entries beside those of a single time
		do   func(t *testing.T, b *authorizetest.Browser)
	}{
		"ask for a further factor": {0, func(t *testing.T, b *authorizetest.Browser) {
			r := b.Authorize(authorizetest.Request(url.Values{"acr_values": {"mfa"}, "junk": junk["junk"]}))
			if u, err := r.Location(); err != nil || !u.Query().Has("factor") {
				t.Fatalf("no further factor is asked for: %d to %v", r.StatusCode, u)
			}
		}},
		"decline a further factor": {200, func(t *testing.T, b *authorizetest.Browser) {
			r := b.Authorize(authorizetest.Request(url.Values{"acr_values": {"mfa"}}))
			r = b.Get(r.Header.Get("Location") + "&decision=deny")
			if e := authorizetest.Location(t, r).Query().Get("error"); e != "access_denied" {
				t.Fatalf("error %q", e)
			}
		}},
		"revoke a service's tokens": {200 + 2, func(t *testing.T, b *authorizetest.Browser) {
			service := url.Values{"grant_type": {"client_credentials"}, "client_id": {"service"}, "client_secret": {"hush"}}
			service.Set("token", b.RequestTokens(service).AccessToken)
			authorizetest.WantStatus(t, b.Post("/oauth2/revoke", service), http.StatusOK, "revocation")
			if b.TokenWorks(service.Get("token")) {
				t.Fatal("the token works")
			}
		}},
		"get codes": {2 * 200, func(_ *testing.T, b *authorizetest.Browser) { b.CodeOfSession(junk) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := store.NewMemory(0, 0)
			b := authorizetest.NewLaunching(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
				c.Store, c.Durable = memory, memory
			})
			authorizetest.SignInToAccount(b, "alice", "right")
			authorizetest.EnrolApp(b)
			tt.do(t, b)
			before, _ := memory.Size()
			for range 450 {
				tt.do(t, b)
			}
			if after, _ := memory.Size(); after-before > tt.most {
				t.Errorf("%d entries more", after-before)
			}
			_ = memory.Entries(t.Context(), func(key string, value []byte, _ time.Duration) error {
				if len(value) > 1500 && store.KindOf(key) != "revocations" { // a list
					t.Errorf("an entry of %d bytes: %s", len(value), key)
				}
				return nil
			})
		})
	}
}

// People sign out and clients revoke in a store that is full, while it refuses what is new.
func TestEndingsInAFullStore(t *testing.T) {
	t.Parallel()
	const most = 150
	for name, full := range map[string]store.Store{
		"memory": store.NewMemory(most, 0, store.EndingKinds...),
		"file":   boltstore.New(filepath.Join(t.TempDir(), "store.db"), most, store.EndingKinds...),
	} {
		t.Run(name, func(t *testing.T) {
			server := authorizetest.New(t, func(c *authorize.Config) {
				c.Store, c.Durable = full, full
				c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
			})
			browsers := make([]*authorizetest.Browser, 3)
			tokens := make([]authorizetest.TokenResponse, 3)
			for i := range browsers {
				browsers[i] = authorizetest.NewBrowser(t, server)
				tokens[i] = browsers[i].Tokens(authorizetest.OfflineAccess(nil))
			}
			var err error
			for i := 0; i < 2*most && err == nil; i++ {
				err = full.Add(t.Context(), fmt.Sprint("session:", i), nil, time.Hour)
			}
			if !errors.Is(err, store.ErrFull) {
				t.Fatalf("the store does not become full: %v", err)
			}
			for what, token := range map[string]string{"a refresh token": tokens[0].Refresh, "an access token": tokens[1].AccessToken} {
				authorizetest.WantStatus(t, authorizetest.AskAboutToken(browsers[0], "/oauth2/revoke", token, "app", ""), http.StatusOK, what)
			}
			r := browsers[1].Get("/oauth2/logout?" + url.Values{"id_token_hint": {tokens[1].IDToken}}.Encode())
			if r.StatusCode != http.StatusOK || browsers[1].SignedIn() {
				t.Errorf("logout: %d", r.StatusCode)
			}
			if _, err := server.RevokeGrants(t.Context(), "alice", ""); err != nil {
				t.Errorf("ending all grants: %v", err)
			}
			for i := range tokens {
				if browsers[i].TokenWorks(tokens[i].AccessToken) {
					t.Errorf("token %d works", i)
				}
			}
		})
	}
}

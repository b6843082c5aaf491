package authorize_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

var errListed = errors.New("the whole store was looked through")

// personOperation is an operation on one user with its expected effects.
type personOperation struct {
	name    string
	do      func(ctx context.Context, s *authorize.Server) error
	session bool // whether it ends the session
	refresh bool // whether it revokes the refresh token
}

var onePersonOperations = []personOperation{
	{"revoke everything", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.RevokeGrants(ctx, "alice", "")
		if err == nil && (ended != token.RevokedGrants{Sessions: 1, RefreshTokens: 1, Consents: 1}) {
			err = errors.New("not everything is counted")
		}
		return err
	}, true, true},
	{"revoke an app", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.RevokeGrants(ctx, "alice", "app")
		if err == nil && (ended != token.RevokedGrants{RefreshTokens: 1, Consents: 1}) {
			err = errors.New("not everything is counted")
		}
		return err
	}, false, true},
	{"remove a user", func(ctx context.Context, s *authorize.Server) error { return s.RevokeUser(ctx, "alice") }, true, true},
	{"end sessions", func(ctx context.Context, s *authorize.Server) error {
		ended, err := s.EndSessions(ctx, "alice")
		if err == nil && ended != 1 {
			err = errors.New("not one session ended")
		}
		return err
	}, true, false},
	{"list sessions", func(ctx context.Context, s *authorize.Server) error {
		list, err := s.Sessions(ctx, "alice")
		if err == nil && len(list) != 1 {
			err = errors.New("not one session")
		}
		return err
	}, false, false},
	{"list grants", func(ctx context.Context, s *authorize.Server) error {
		list, err := s.Grants(ctx, token.GrantFilter{User: "alice"})
		if err == nil && len(list) != 1 {
			err = errors.New("not one grant")
		}
		return err
	}, false, false},
}

// withConsent requires consent for the client app.
func withConsent(c *authorize.Config) {
	authorizetest.AllowRefreshTokens(c)
	c.Clients[0].Consent = "required"
}

// Operations on one user read only that user's entries, regardless of the number of other users.
func TestOnePersonIsFoundByLists(t *testing.T) {
	t.Parallel()
	for _, op := range onePersonOperations {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			listed := true
			s := storetest.NewInterceptedStore(func(method, _ string) error {
				if method == "List" && !listed {
					return errListed
				}
				return nil
			})
			checkOnePerson(t, s, op, func(*authorize.Server) { listed = false })
		})
	}
}

// checkOnePerson signs alice and bob in, prepares the store, and checks that an operation has the expected effects on alice and
// no effect on bob.
func checkOnePerson(t *testing.T, s store.Store, op personOperation, prepare func(*authorize.Server)) {
	t.Helper()
	server := authorizetest.New(t, func(c *authorize.Config) {
		withConsent(c)
		c.Store, c.DurableStore = s, s
	})
	var browsers []*authorizetest.Browser
	var tokens []authorizetest.TokenResponse
	for user, password := range map[string]string{"alice": "right", "bob": "other"} {
		b := authorizetest.NewBrowser(t, server)
		got := b.Redeem(b.Allow(b.SignIn(authorizetest.Request(authorizetest.WithOfflineAccess(nil)), user, password), "*"))
		if got.RefreshToken == "" {
			t.Fatalf("%s got no refresh token: %+v", user, got)
		}
		if user == "alice" {
			browsers, tokens = slices.Insert(browsers, 0, b), slices.Insert(tokens, 0, got)
			continue
		}
		browsers, tokens = append(browsers, b), append(tokens, got)
	}
	prepare(server)
	authorizetest.NoError(t, op.do(t.Context(), server))
	// signedIn uses another client, because the client app requires consent.
	signedIn := func(b *authorizetest.Browser) bool {
		r := b.Authorize(authorizetest.Request(url.Values{"client_id": {"confidential"}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}))
		return authorizetest.Location(t, r).Query().Get("code") != ""
	}
	if signedIn(browsers[0]) == op.session || !signedIn(browsers[1]) {
		t.Errorf("alice is signed in: %v, bob: %v", signedIn(browsers[0]), signedIn(browsers[1]))
	}
	if works := browsers[0].Refresh(tokens[0].RefreshToken, nil).AccessToken != ""; works == op.refresh {
		t.Errorf("the refresh token of alice works: %v", works)
	}
	if browsers[1].Refresh(tokens[1].RefreshToken, nil).AccessToken == "" {
		t.Error("the refresh token of bob ended")
	}
}

// A session extended by a new sign-in remains in the list until it expires.
func TestProlongedSessionStaysListed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := storetest.NewInterceptedStore(func(method, _ string) error {
			if method == "List" {
				return errListed
			}
			return nil
		})
		server := authorizetest.New(t, func(c *authorize.Config) { c.Store, c.DurableStore = s, s })
		b := authorizetest.NewBrowser(t, server)
		b.SignInAlice(authorizetest.Request(nil))
		for range 2 {
			time.Sleep(7 * time.Hour)
			b.SignIn(authorizetest.Request(url.Values{"prompt": {"login"}}), "alice", "right")
		}
		time.Sleep(7 * time.Hour)
		if ended, err := server.EndSessions(t.Context(), "alice"); ended != 1 || err != nil || b.HasSession() {
			t.Errorf("ended %d: %v", ended, err)
		}
	})
}

// A session in a user's list that belongs to another user is not ended.
func TestListedSessionOfAnotherUser(t *testing.T) {
	t.Parallel()
	durable := store.NewMemory(0, 0)
	server := authorizetest.New(t, func(c *authorize.Config) { c.Store, c.DurableStore = durable, durable })
	alice, bob := authorizetest.NewBrowser(t, server), authorizetest.NewBrowser(t, server)
	alice.SignInAlice(authorizetest.Request(nil))
	bob.SignIn(authorizetest.Request(nil), "bob", "other")
	sessions, err := server.Sessions(t.Context(), "bob")
	if err != nil || len(sessions) != 1 {
		t.Fatal(sessions, err)
	}
	list := store.RecentList{Store: durable, Key: store.Key("sessions", "alice"), Max: 1000, TTL: time.Hour}
	if _, err := list.Add(t.Context(), sessions[0].ID); err != nil {
		t.Fatal(err)
	}
	if ended, err := server.EndSessions(t.Context(), "alice"); ended != 1 || err != nil || alice.HasSession() || !bob.HasSession() {
		t.Errorf("ended %d, %v; alice is signed in: %v, bob: %v", ended, err, alice.HasSession(), bob.HasSession())
	}
}

// A provider's logout for one subject ends that user's sessions without reading other users' sessions.
func TestProviderLogoutUsesLists(t *testing.T) {
	t.Parallel()
	p := providertest.Start(t)
	s := storetest.NewInterceptedStore(func(method, prefix string) error {
		if method == "List" && strings.HasPrefix(prefix, "session") {
			return errListed
		}
		return nil
	})
	server := authorizetest.NewFederatedServer(t, p, func(_ *people.IdentityProvider, c *authorize.Config) { c.Store, c.DurableStore = s, s })
	b := authorizetest.NewBrowser(t, server)
	authorizetest.SignInAtProvider(b, nil)
	if r := authorizetest.NotifyBackchannelLogout(t, server, p.LogoutToken()); r.StatusCode != http.StatusOK || b.HasSession() {
		t.Errorf("%d, signed in: %v", r.StatusCode, b.HasSession())
	}
}

// Repeated actions of one user use a limited number of entries, and unknown parameters do not enlarge entries.
func TestOnePersonDoesNotFillTheStore(t *testing.T) {
	t.Parallel()
	junk := url.Values{"junk": {strings.Repeat("&", 2000)}}
	for name, tt := range map[string]struct {
		maxEntries int // entries in addition to those of a single run
		do         func(t *testing.T, b *authorizetest.Browser)
	}{
		"ask for a further factor": {0, func(t *testing.T, b *authorizetest.Browser) {
			r := b.Authorize(authorizetest.Request(url.Values{"acr_values": {"mfa"}, "junk": junk["junk"]}))
			if u, err := r.Location(); err != nil || !u.Query().Has("factor") {
				t.Fatalf("no second factor required: %d to %v", r.StatusCode, u)
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
			if b.IsTokenValid(service.Get("token")) {
				t.Fatal("the token works")
			}
		}},
		"get codes": {2 * 200, func(_ *testing.T, b *authorizetest.Browser) { b.CodeWithSession(junk) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memory := store.NewMemory(0, 0)
			b := authorizetest.NewLaunchBrowser(t, new(authorizetest.FHIRServer), "Practitioner/alice", func(c *authorize.Config) {
				c.Store, c.DurableStore = memory, memory
			})
			authorizetest.SignInToAccount(b, "alice", "right")
			authorizetest.EnrollApp(b)
			tt.do(t, b)
			before, _ := memory.Size()
			for range 450 {
				tt.do(t, b)
			}
			if after, _ := memory.Size(); after-before > tt.maxEntries {
				t.Errorf("%d entries more", after-before)
			}
			_ = memory.Entries(t.Context(), func(key string, value []byte, _ time.Duration) error {
				if len(value) > 1500 && store.KindOf(key) != "revocations" { // the revocations entry is a list
					t.Errorf("an entry of %d bytes: %s", len(value), key)
				}
				return nil
			})
		})
	}
}

// Logout and revocation work in a full store that rejects new entries.
func TestRevocationInFullStore(t *testing.T) {
	t.Parallel()
	const capacity = 150
	for name, full := range map[string]store.Store{
		"memory": store.NewMemory(capacity, 0, store.RevocationKinds...),
		"file":   boltstore.New(filepath.Join(t.TempDir(), "store.db"), capacity, store.RevocationKinds...),
	} {
		t.Run(name, func(t *testing.T) {
			server := authorizetest.New(t, func(c *authorize.Config) {
				c.Store, c.DurableStore = full, full
				c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access")
			})
			browsers := make([]*authorizetest.Browser, 3)
			tokens := make([]authorizetest.TokenResponse, 3)
			for i := range browsers {
				browsers[i] = authorizetest.NewBrowser(t, server)
				tokens[i] = browsers[i].Tokens(authorizetest.WithOfflineAccess(nil))
			}
			var err error
			for i := 0; i < 2*capacity && err == nil; i++ {
				err = full.Add(t.Context(), fmt.Sprint("session:", i), nil, time.Hour)
			}
			if !errors.Is(err, store.ErrFull) {
				t.Fatalf("the store does not become full: %v", err)
			}
			for what, token := range map[string]string{"a refresh token": tokens[0].RefreshToken, "an access token": tokens[1].AccessToken} {
				authorizetest.WantStatus(t, authorizetest.SendTokenForm(browsers[0], "/oauth2/revoke", token, "app", ""), http.StatusOK, what)
			}
			r := browsers[1].Get("/oauth2/logout?" + url.Values{"id_token_hint": {tokens[1].IDToken}}.Encode())
			if r.StatusCode != http.StatusOK || browsers[1].HasSession() {
				t.Errorf("logout: %d", r.StatusCode)
			}
			if _, err := server.RevokeGrants(t.Context(), "alice", ""); err != nil {
				t.Errorf("ending all grants: %v", err)
			}
			for i := range tokens {
				if browsers[i].IsTokenValid(tokens[i].AccessToken) {
					t.Errorf("token %d works", i)
				}
			}
		})
	}
}

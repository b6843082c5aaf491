package revocation_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Times in a JWT have a precision of seconds. Nevertheless, within the second of a revocation, tokens issued before it are
// void, and tokens issued after it are valid.
func TestRevocationWithinOneSecond(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*authorize.Server) error{
		"of a session": func(s *authorize.Server) error { _, err := s.EndSessions(context.Background(), "alice"); return err },
		"of a person": func(s *authorize.Server) error {
			_, err := s.RevokeGrants(context.Background(), "alice", "")
			return err
		},
		"of a client": func(s *authorize.Server) error { _, err := s.RevokeGrants(context.Background(), "", "app"); return err },
		"of a pair": func(s *authorize.Server) error {
			_, err := s.RevokeGrants(context.Background(), "alice", "app")
			return err
		},
	} {
		for _, into := range []time.Duration{0, 300 * time.Millisecond, time.Second - 1} {
			t.Run(name+" after "+into.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := authorizetest.New(t, authorizetest.AllowRefreshTokens)
					b := authorizetest.NewBrowser(t, s)
					before := b.Tokens(nil).AccessToken
					time.Sleep(into)
					if err := end(s); err != nil || b.IsTokenValid(before) {
						t.Fatalf("error %v, or the earlier token works", err)
					}
					if after := authorizetest.NewBrowser(t, s).Tokens(authorizetest.WithOfflineAccess(nil)); !b.IsTokenValid(after.AccessToken) || !b.IsTokenValid(b.Refresh(after.RefreshToken, nil).AccessToken) {
						t.Error("a later token does not work")
					}
					last := authorizetest.NewBrowser(t, s).Tokens(nil).AccessToken
					time.Sleep(time.Millisecond)
					if err := end(s); err != nil || b.IsTokenValid(last) {
						t.Errorf("error %v, or the second ending did not count", err)
					}
				})
			})
		}
	}
}

// Refresh tokens remain revoked after the cutoff, which is stored for a day, has expired.
func TestEndedGrantsStayEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := authorizetest.New(t, authorizetest.AllowRefreshTokens)
		b := authorizetest.NewBrowser(t, s)
		token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
		if _, err := s.RevokeGrants(t.Context(), "alice", "app"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		authorizetest.CheckTokensInvalid(b, token)
	})
}

func TestClientCredentialsEnd(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
	s := b.Server.(*authorize.Server)
	get := func() string {
		r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
		r.SetBasicAuth("service", "hush")
		return authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken
	}
	active := func(token string) bool {
		return authorizetest.Decode[map[string]any](t, authorizetest.SendTokenForm(b, "/oauth2/introspect", token, "fhir-server", "rs"))["active"] == true
	}
	before := get()
	if !active(before) {
		t.Fatal("no token to begin with")
	}
	if _, err := s.RevokeGrants(t.Context(), "", "service"); err != nil || active(before) || !active(get()) {
		t.Errorf("error %v, earlier token %t", err, active(before))
	}
}

// A revocation does not affect other users or clients, whatever their names are.
func TestOtherGrantsStay(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.AllowRefreshTokens(c)
		c.Users = append(c.Users, people.User{ID: "alicea", PasswordHash: "x"})
		c.Clients = append(c.Clients, client.Client{ID: "aapp", PKCE: client.PKCEOptional, RedirectURIs: []string{authorizetest.Callback}, Scopes: c.Clients[0].Scopes})
	})
	b := authorizetest.NewBrowser(t, s)
	q := authorizetest.Request(authorizetest.WithOfflineAccess(nil))
	b.SignIn(q, "alicea", "x")
	other := authorizetest.TokensWithSession(b)
	b.Cookies = map[string]string{}
	b.SignInAlice(authorizetest.Request(authorizetest.WithOfflineAccess(url.Values{"client_id": {"aapp"}})))
	code := authorizetest.Location(t, b.Authorize(authorizetest.Request(authorizetest.WithOfflineAccess(url.Values{"client_id": {"aapp"}})))).Query().Get("code")
	same := b.RequestTokens(authorizetest.CodeForm(code, url.Values{"client_id": {"aapp"}}))
	if got, err := s.RevokeGrants(t.Context(), "alice", "aapp"); err != nil || got.RefreshTokens != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if !b.IsTokenValid(other.AccessToken) || b.IsTokenValid(same.AccessToken) {
		t.Error("another pair's token has ended, or not this one's")
	}
}

// Revoking grants of an unknown user or client is an error.
func TestEndGrantsOfUnknownNames(t *testing.T) {
	t.Parallel()
	s := authorizetest.New(t, nil)
	for _, tt := range []struct{ user, client string }{{"", ""}, {"alcie", ""}, {"", "ap"}, {"alice", "ap"}, {"alcie", "app"}} {
		if _, err := s.RevokeGrants(t.Context(), tt.user, tt.client); err == nil {
			t.Errorf("%+v", tt)
		}
	}
	if _, err := s.RevokeGrants(t.Context(), "bob", "app"); err != nil {
		t.Errorf("of who has nothing: %v", err)
	}
}

// A client with revoked grants receives a logout token, although the user remains signed in.
func TestRevocationNotifiesClient(t *testing.T) {
	t.Parallel()
	p := authorizetest.NewLogoutReceiver(t)
	s, _ := authorizetest.NewNotifyingServer(t, p)
	b := authorizetest.NewBrowser(t, s)
	id := b.Claims(b.Tokens(nil).IDToken)
	if _, err := s.RevokeGrants(t.Context(), "alice", "app"); err != nil || !b.HasSession() {
		t.Fatalf("%v", err)
	}
	if claims := b.Claims(<-p.Tokens); claims["sid"] != id["sid"] || claims["aud"] != "app" {
		t.Errorf("logout token claims %v", claims)
	}
}

// If a revocation cannot be stored, nothing is revoked, and no client is notified.
func TestFailedRevocation(t *testing.T) {
	t.Parallel()
	broken := false
	durable := authorizetest.NewFailingStore(&broken)
	s := authorizetest.New(t, func(c *authorize.Config) { authorizetest.AllowRefreshTokens(c); c.DurableStore = durable })
	b := authorizetest.NewBrowser(t, s)
	tokens := b.Tokens(authorizetest.WithOfflineAccess(nil))
	broken = true
	_, err := s.RevokeGrants(t.Context(), "alice", "")
	_, err2 := s.EndSessions(t.Context(), "alice")
	if !errors.Is(err, authorizetest.ErrStoreFailed) || !errors.Is(err2, authorizetest.ErrStoreFailed) {
		t.Errorf("%v, %v", err, err2)
	}
	if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("signing out: %d", r.StatusCode)
	}
	broken = false
	if b.Refresh(tokens.RefreshToken, nil).AccessToken == "" || !b.HasSession() {
		t.Error("ended all the same")
	}
}

// Logout works if the store is full.
func TestSignOutWithFullStore(t *testing.T) {
	t.Parallel()
	for name, durable := range map[string]store.Store{"one store for all": nil, "a durable store": store.NewMemory(0, 0)} {
		t.Run(name, func(t *testing.T) {
			store := store.NewMemory(0, 0)
			b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Store, c.DurableStore = store, durable }))
			tokens := b.Tokens(nil)
			entries, _ := store.Size()
			store.SetMaxEntries(entries)
			r := b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken)
			if r.StatusCode != http.StatusOK || b.IsTokenValid(tokens.AccessToken) {
				t.Errorf("status %d", r.StatusCode)
			}
		})
	}
}

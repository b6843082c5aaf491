package token_test

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// No token passes for one of another kind, even where one key signs both.
func TestTokensOfOneKindAlone(t *testing.T) {
	t.Parallel()
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, func(c *authorize.Config) {
				servertest.Refreshing(c)
				servertest.ResourceServer(c)
				c.Clients[0].IDTokenAlgorithm = alg
			}))
			tokens := b.Tokens(servertest.OfflineAccess(nil))
			if header := joseHeader(t, tokens.IDToken); header.Algorithm != alg || header.ExtraHeaders["typ"] != "JWT" {
				t.Errorf("ID token: %+v", header)
			}
			if header := joseHeader(t, tokens.AccessToken); header.Algorithm != "ES256" || header.ExtraHeaders["typ"] != "at+jwt" {
				t.Errorf("access token: %+v", header)
			}
			b.Claims(tokens.IDToken)
			for name, token := range map[string]string{"ID token": tokens.IDToken, "refresh token": tokens.Refresh} {
				if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
					t.Errorf("userinfo by %s: %d", name, r.StatusCode)
				}
			}
			for name, token := range map[string]string{"an ID token": tokens.IDToken, "an access token": tokens.AccessToken} {
				if got := b.Refresh(token, nil); got.Error != "invalid_grant" {
					t.Errorf("refresh by %s: %+v", name, got)
				}
			}
			if got := servertest.Decode[map[string]any](t, servertest.AskAboutToken(b, "/oauth2/introspect", tokens.IDToken, "fhir-server", "rs")); got["active"] != false {
				t.Errorf("introspection of an ID token: %v", got)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.AccessToken); r.StatusCode != http.StatusBadRequest {
				t.Errorf("an access token as id_token_hint: %d", r.StatusCode)
			}
			if r := b.Get("/oauth2/logout?id_token_hint=" + tokens.IDToken); r.StatusCode != http.StatusOK || b.SignedIn() {
				t.Errorf("an ID token as id_token_hint: %d", r.StatusCode)
			}
		})
	}
}

// A verified token is remembered, and yet expires and can be revoked.
func TestRememberedToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := servertest.NewBrowser(t, servertest.New(t, nil))
		token := b.Tokens(nil).AccessToken
		for range 3 {
			if !b.TokenWorks(token) {
				t.Fatal("does not work")
			}
		}
		for _, altered := range []string{token[:len(token)-1], token + "A", servertest.Altered(token)} {
			if b.TokenWorks(altered) {
				t.Errorf("…%s works", altered[len(altered)-4:])
			}
		}
		time.Sleep(time.Hour)
		if b.TokenWorks(token) {
			t.Error("works after its time")
		}
	})
}

// A token ends with its client.
func TestTokenOfRemovedClient(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	token := b.Tokens(nil).AccessToken
	b.Server = servertest.New(t, func(c *authorize.Config) { c.Clients = c.Clients[1:] })
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("userinfo: %d", r.StatusCode)
	}
}

// A clock that jumps ahead, beyond the lifetime of a token, and back makes no revoked token valid: revocations outlive tokens by
// a day, and tokens that seem to have expired can be revoked for a day.
func TestRevocationOutlivesClockJump(t *testing.T) {
	t.Parallel()
	const jump = 23 * time.Hour
	for name, tt := range map[string]struct {
		before, after time.Duration // until the revocation, and until the clock jumps back
		revoke        func(b *servertest.Browser, s *authorize.Server, tokens servertest.TokenResponse)
		kept          bool
	}{
		"a token, then the clock jumps":           {0, time.Hour + jump, revokeToken, true},
		"a token, while it seems to have expired": {time.Hour + jump, time.Minute, revokeToken, true},
		"a token that expired long ago":           {time.Hour + 25*time.Hour, 0, revokeToken, false},
		"a person, then the clock jumps": {0, 24*time.Hour + jump, func(b *servertest.Browser, s *authorize.Server, _ servertest.TokenResponse) {
			if _, err := s.RevokeGrants(b.T.Context(), "alice", ""); err != nil {
				b.T.Fatal(err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := store.NewMemory(0, 0)
				s := servertest.New(t, func(c *authorize.Config) { c.Store = memory })
				b := servertest.NewBrowser(t, s)
				tokens := b.Tokens(nil)
				time.Sleep(tt.before)
				tt.revoke(b, s, tokens)
				time.Sleep(tt.after)
				kept := 0
				for _, kind := range []string{"revoked:", "cutoff:user:"} {
					keys, err := memory.List(t.Context(), kind)
					servertest.NoError(t, err)
					kept += len(keys)
				}
				if kept > 0 != tt.kept {
					t.Errorf("%d revocations are stored", kept)
				}
			})
		})
	}
}

func revokeToken(b *servertest.Browser, _ *authorize.Server, tokens servertest.TokenResponse) {
	servertest.WantStatus(b.T, b.Post("/oauth2/revoke", url.Values{"token": {tokens.AccessToken}, "client_id": {"app"}}), http.StatusOK)
}

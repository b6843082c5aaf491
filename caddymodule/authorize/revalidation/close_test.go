package revalidation_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/providertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func (h *hospital) endSessionOf(b *authorizetest.Browser, tokens authorizetest.TokenResponse) {
	h.t.Helper()
	sid, _ := b.Claims(tokens.IDToken)["sid"].(string)
	n, err := h.servers[0].EndSession(context.Background(), sid)
	if err != nil || n != 1 {
		h.t.Fatal(n, err)
	}
}

// With a person's last sign-in, of which nothing is left, its refresh token is given back, and
// nothing stays here. Some providers revoke all of a person's by one.
func TestRefreshTokenIsGivenBack(t *testing.T) {
	t.Parallel()
	inHospital(t, 2, nil, func(h *hospital) {
		ward, tokens := h.signIn("online_access")
		office, others := h.signIn("online_access")
		h.endSessionOf(ward, tokens)
		after(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0, "there is another sign-in")
		h.wantWorks(office, others)
		h.endSessionOf(office, others)
		after(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 1, "of the last")
		authorizetest.Equal(t, len(h.keys("upstream"))+len(h.keys("upstream-due")), 0, "left")
	})
}

// The refresh token of an earlier sign-in is not given back while the person signs in: the new one may end with it.
func TestSignInWhileTheLastIsClosed(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		h.endSessionOf(b, tokens)
		var once sync.Once
		h.stored.failing(func(c *store.Call) bool {
			if strings.HasPrefix(c.Key, "upstream:") && c.Op == store.Add {
				once.Do(func() { h.stored.failing(nil); after(interval) }) // the sweep comes just before
			}
			return false
		})
		h.signIn("online_access")
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0)
	})
}

// A grant that keeps what its session is asked by while that is signed in to again loses nothing.
func TestKeptWhileSigningInAgain(t *testing.T) {
	t.Parallel()
	inHospital(t, -1, nil, func(h *hospital) {
		b, _ := h.signIn("online_access")
		q := authorizetest.ByProvider("hospital")
		q.Set("prompt", "login")
		there := authorizetest.Location(t, authorizetest.FollowOnce(b, b.Authorize(authorizetest.Request(q))))
		var once sync.Once
		var kept authorizetest.TokenResponse
		h.stored.failing(func(c *store.Call) bool {
			if strings.HasPrefix(c.Key, "session:") && c.Op == store.Put {
				once.Do(func() {
					other := authorizetest.NewBrowser(t, h.servers[0])
					other.Cookies = maps.Clone(b.Cookies)
					kept = other.RequestTokens(authorizetest.CodeForm(other.CodeOfSession(authorizetest.OfflineAccess(nil)), nil))
				})
			}
			return false
		})
		authorizetest.WantCode(t, authorizetest.Location(t, b.Get("/oauth2/callback/hospital?"+h.Authorize(t, there.String()).Encode())))
		h.stored.failing(nil)
		after(50 * time.Hour) // the session is over, and nothing but the grant is left
		if kept = b.Refresh(kept.Refresh, nil); kept.AccessToken == "" {
			t.Errorf("%s %s", kept.Error, kept.Description)
		}
	})
}

// A grant that outlives the session keeps what can be asked by, and is asked about only while an
// access token lasts, or when it is refreshed.
func TestGrantOutlivesSession(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.endSessionOf(b, tokens)
		after(50 * time.Hour)
		asked := len(h.asked())
		after(200 * time.Hour)
		authorizetest.Equal(t, len(h.asked()), asked, "while nothing lasts")
		tokens = b.Refresh(tokens.Refresh, nil)
		authorizetest.Equal(t, len(h.asked()), asked+1, "at the refresh")
		h.becomes(nil)
		after(interval)
		if b.TokenWorks(tokens.AccessToken) {
			t.Error("the access token goes on")
		}
		authorizetest.CheckDead(b, tokens.Refresh, tokens.AccessToken)
	})
}

// An access token that lasts when the time of its session is over is asked about all the same.
func TestTokenOutlivesSession(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("online_access")
		time.Sleep(23 * time.Hour)
		tokens = b.Refresh(tokens.Refresh, nil)
		after(2 * time.Hour)
		if !b.TokenWorks(tokens.AccessToken) || b.SignedIn() {
			t.Error("the access token ended, or the session did not")
		}
		h.becomes(nil)
		after(interval)
		if b.TokenWorks(tokens.AccessToken) {
			t.Error("the access token goes on")
		}
	})
}

// Signing in again in a session replaces what the provider is asked by, and keeps the grants of before.
func TestSignInAgain(t *testing.T) {
	t.Parallel()
	inHospital(t, 1, nil, func(h *hospital) {
		b, tokens := h.signIn("offline_access")
		h.signInAgain(b)
		authorizetest.Equal(t, len(h.keys("upstream")), 1)
		tokens = h.wantWorks(b, tokens)
		h.endSessionOf(b, tokens)
		after(interval)
		authorizetest.Equal(t, len(h.Requests(providertest.Revocation)), 0)
		h.becomes(nil)
		after(interval)
		authorizetest.CheckDead(b, tokens.Refresh, tokens.AccessToken)
	})
}

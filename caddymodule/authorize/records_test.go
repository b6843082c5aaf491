package authorize_test

import (
	"bytes"
	"net/http"
	"net/url"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A record of a newer format results in an internal error that states the cause. It is not read in the current format.
func TestNewerRecordFormat(t *testing.T) {
	t.Parallel()
	s := store.NewMemory(0, 0)
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		withoutGrace(c)
		authorizetest.AllowRefreshTokens(c)
		c.Store, c.DurableStore = s, s
	}))
	refresh := b.Redeem(b.SignInAlice(authorizetest.Request(authorizetest.WithOfflineAccess(nil)))).RefreshToken
	code := b.CodeWithSession(nil)
	handle := authorizetest.Decode[map[string]any](t, b.Post("/oauth2/launch", authorizetest.LaunchForm(url.Values{"app": {"launched"}})))["launch"].(string)
	for _, kind := range []string{"code", "refresh", "session", "launch"} {
		keys, err := s.List(t.Context(), kind+":")
		if err != nil || len(keys) == 0 {
			t.Fatalf("%s: %q, %v", kind, keys, err)
		}
		for _, key := range keys {
			authorizetest.NoError(t, store.UpdateValue(t.Context(), s, key, store.Forever, func(read []byte) ([]byte, error) {
				return bytes.Replace(read, []byte(`{"v":1`), []byte(`{"v":2`), 1), nil
			}))
		}
	}
	launched := authorizetest.Request(url.Values{"client_id": {"launched"}, "scope": {"launch openid"}, "launch": {handle}})
	for name, answer := range map[string]*http.Response{
		"a code":          b.Post("/oauth2/token", authorizetest.CodeForm(code, nil)),
		"a refresh token": b.Post("/oauth2/token", authorizetest.RefreshForm(refresh, nil)),
		"a session":       b.Authorize(authorizetest.Request(nil)),
		"a launch":        b.Authorize(launched),
	} {
		if !isInternalError("", answer) {
			t.Errorf("%s: %d to %q", name, answer.StatusCode, answer.Header.Get("Location"))
		}
	}
}

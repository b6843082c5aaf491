package authorize_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// FuzzRefreshToken tries texts that are not the token: none gives anything, none
// fails here, and none of them ends the family that it may resemble.
func FuzzRefreshToken(f *testing.F) {
	server := servertest.New(f, refreshing)
	b := servertest.NewBrowser(f, server)
	token := b.Tokens(servertest.OfflineAccess(nil)).Refresh
	for _, seed := range []string{"", token[:63], token + "A", token + "\n", token[:16], token[:22] + token[20:], "....", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == token {
			t.Skip("the token itself")
		}
		r := servertest.NewBrowser(t, server).Post("/oauth2/token", servertest.RefreshForm(text, nil))
		if r.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %d", text, r.StatusCode)
		}
		if r := servertest.NewBrowser(t, server).Post("/oauth2/token", servertest.RefreshForm(token, url.Values{"scope": {"none"}})); servertest.Decode[servertest.TokenResponse](t, r).Error != "invalid_scope" {
			t.Errorf("%q ended the family", text)
		}
	})
}

// FuzzAssertion tries assertions that nobody signed.
func FuzzAssertion(f *testing.F) {
	server := servertest.NewBackend(f, nil)
	good := servertest.Assertion(f, jose.ES384, nil, nil)
	for _, seed := range []string{"", "..", "e30.e30.", good[:len(good)-1], good[4:], "eyJhbGciOiJub25lIn0." + good, `{"payload":"","signatures":[]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == good {
			t.Skip("the assertion itself")
		}
		r := servertest.NewBrowser(t, server).Post("/oauth2/token", servertest.AssertionForm(text, nil))
		if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %d", text, r.StatusCode)
		}
	})
}

package authorize_test

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// FuzzAuthorize sends arbitrary queries. Every response is a redirect to a registered redirect URI
// or to the sign-in page, or an error page.
func FuzzAuthorize(f *testing.F) {
	f.Add(authorizetest.Request(nil).Encode())
	f.Add(authorizetest.Request(authorizetest.PKCE()).Encode())
	f.Add("client_id=app&redirect_uri=" + url.QueryEscape(authorizetest.Callback) + "&response_type=token&scope=user/*.cruds&state=%7B%7D")
	f.Add("client_id=app&redirect_uri=%00&&;=%zz")
	f.Add(authorizetest.Request(url.Values{"nonce": {"n"}, "response_type": {"id_token token"}, "response_mode": {"fragment"}, "prompt": {"none"}}).Encode())
	f.Add(authorizetest.Request(url.Values{"response_mode": {"form_post"}, "scope": {"x"}, "state": {"\x00<"}}).Encode())
	f.Add(authorizetest.Request(url.Values{"claims": {`{"userinfo":{"sub":{"value":"alice"},"email":null}}`}, "id_token_hint": {"e30.e30."}, "max_age": {"1"}}).Encode())
	f.Add(authorizetest.PushedRequest("urn:ietf:params:oauth:request_uri:x").Encode())
	server := authorizetest.New(f, authorizetest.AllowAllFlows)
	allowed := []string{"/oauth2/login?request=", authorizetest.Callback + "?", "http://localhost:3000/callback?", authorizetest.Callback + "#", "http://localhost:3000/callback#"}
	posts := []string{`action="` + authorizetest.Callback + `"`, `action="http://localhost:3000/callback"`}
	f.Fuzz(func(t *testing.T, query string) {
		r := authorizetest.PostRequest("/oauth2/authorize", nil)
		r.Method, r.URL.RawQuery = http.MethodGet, query
		response := authorizetest.NewBrowser(t, server).Send(r)
		location := response.Header.Get("Location")
		sent := slices.ContainsFunc(allowed, func(prefix string) bool { return strings.HasPrefix(location, prefix) })
		switch {
		case response.StatusCode == http.StatusFound && sent && !strings.ContainsAny(location, "\r\n"):
		case response.StatusCode == http.StatusOK && location == "" && strings.Contains(query, "form_post"):
			page := authorizetest.Body(t, response)
			if !slices.ContainsFunc(posts, func(post string) bool { return strings.Contains(page, post) }) || strings.Count(page, "<script") != 1 {
				t.Errorf("page %s", page)
			}
		case response.StatusCode == http.StatusBadRequest && location == "":
		default:
			t.Errorf("status %d, Location %q", response.StatusCode, location)
		}
	})
}

// FuzzToken sends arbitrary forms. Every response is an error in JSON.
func FuzzToken(f *testing.F) {
	f.Add(authorizetest.CodeForm("x", nil).Encode(), "Basic Y29uZmlkZW50aWFsOng=")
	f.Add("grant_type=client_credentials&client_id=service&client_secret=x", "")
	f.Add("%zz;&grant_type", "Bearer x")
	server := authorizetest.New(f, nil)
	f.Fuzz(func(t *testing.T, form, authorization string) {
		r := authorizetest.PostRequest("/oauth2/token", nil)
		r.Body = io.NopCloser(strings.NewReader(form))
		if authorization != "" {
			r.Header["Authorization"] = []string{authorization}
		}
		response := authorizetest.NewBrowser(t, server).Send(r)
		if got := authorizetest.Decode[authorizetest.TokenResponse](t, response); got.Error == "" || response.StatusCode < 400 || response.StatusCode >= 500 {
			t.Errorf("status %d, %+v", response.StatusCode, got)
		}
	})
}

// FuzzRefreshToken sends texts other than the refresh token. No text is accepted, causes an internal error, or revokes a token
// family.
func FuzzRefreshToken(f *testing.F) {
	server := authorizetest.New(f, authorizetest.AllowRefreshTokens)
	b := authorizetest.NewBrowser(f, server)
	token := b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken
	for _, seed := range []string{"", token[:63], token + "A", token + "\n", token[:16], token[:22] + token[20:], "....", "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == token {
			t.Skip("the token itself")
		}
		r := authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.RefreshForm(text, nil))
		authorizetest.WantStatus(t, r, http.StatusBadRequest, text)
		if r := authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.RefreshForm(token, url.Values{"scope": {"none"}})); authorizetest.Decode[authorizetest.TokenResponse](t, r).Error != "invalid_scope" {
			t.Errorf("%q ended the family", text)
		}
	})
}

// FuzzAssertion sends unsigned and forged client assertions.
func FuzzAssertion(f *testing.F) {
	server := authorizetest.NewBackendServer(f, nil)
	good := authorizetest.Assertion(f, jose.ES384, nil, nil)
	for _, seed := range []string{"", "..", "e30.e30.", good[:len(good)-1], good[4:], "eyJhbGciOiJub25lIn0." + good, `{"payload":"","signatures":[]}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == good {
			t.Skip("the assertion itself")
		}
		r := authorizetest.NewBrowser(t, server).Post("/oauth2/token", authorizetest.AssertionForm(text, nil))
		if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("%q: %d", text, r.StatusCode)
		}
	})
}

package token_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

func TestUserinfo(t *testing.T) {
	t.Parallel()
	tests := []struct {
		scope string
		want  map[string]any
	}{
		{"openid", map[string]any{}},
		{"openid profile", map[string]any{"name": "Alice Adams", "preferred_username": "alice"}},
		{"openid email", map[string]any{"email": "alice@example.org", "email_verified": true}},
		{"openid phone", map[string]any{"phone_number": "+15550100"}},
		{"openid fhirUser", map[string]any{"fhirUser": servertest.FHIRBase + "/Practitioner/alice"}},
	}
	for _, tt := range tests {
		t.Run(tt.scope, func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, nil))
			tt.want["sub"] = "alice"
			got := servertest.Decode[map[string]any](t, b.Userinfo(b.Tokens(url.Values{"scope": {tt.scope}}).AccessToken))
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestUserinfoRefuses(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	good := b.Tokens(nil)
	withoutOpenID := servertest.NewBrowser(t, b.Server).Tokens(url.Values{"scope": {"demo.read"}})
	tests := []struct {
		name, authorization string
		status              int
		code                string
	}{
		{"no token", "", 401, ""},
		{"another scheme", "Basic YTpi", 401, ""},
		{"no JWT", "Bearer x", 401, "invalid_token"},
		{"an ID token", "Bearer " + good.IDToken, 401, "invalid_token"},
		{"cut short", "Bearer " + good.AccessToken[:len(good.AccessToken)-1], 401, "invalid_token"},
		{"made longer", "Bearer " + good.AccessToken + "A", 401, "invalid_token"},
		{"without openid", "Bearer " + withoutOpenID.AccessToken, 403, "insufficient_scope"},
		{"too long", "Bearer " + strings.Repeat("a", 9<<10), 400, "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := servertest.PostRequest("/oauth2/userinfo", nil)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			response := b.Send(r)
			challenge := response.Header.Get("WWW-Authenticate")
			if response.StatusCode != tt.status || !strings.HasPrefix(challenge, `Bearer realm="`+servertest.Issuer+`"`) {
				t.Errorf("status %d, WWW-Authenticate %q", response.StatusCode, challenge)
			}
			if named := strings.Contains(challenge, `error="`+tt.code+`"`); named != (tt.code != "") {
				t.Errorf("WWW-Authenticate %q", challenge)
			}
		})
	}
}

// The access token may be posted in a form (RFC 6750 §2.2), not be in the query,
// nor in the form and the header.
func TestUserinfoByForm(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	token := b.Tokens(nil).AccessToken
	tests := []struct {
		name, query, kind, body, authorization string
		status                                 int
	}{
		{"in the form", "", "application/x-www-form-urlencoded; charset=UTF-8", "access_token=" + token, "", 200},
		{"in the header, of a form without", "", "application/x-www-form-urlencoded", "a=b", "Bearer " + token, 200},
		{"in the header, of another body", "", "application/json", "{}", "Bearer " + token, 200},
		{"in both", "", "application/x-www-form-urlencoded", "access_token=" + token, "Bearer " + token, 400},
		{"twice", "", "application/x-www-form-urlencoded", "access_token=" + token + "&access_token=" + token, "", 400},
		{"cut short", "", "application/x-www-form-urlencoded", "access_token=" + token[:len(token)-1], "", 401},
		{"of another type", "", "text/plain", "access_token=" + token, "", 401},
		{"in the query", "?access_token=" + token, "application/x-www-form-urlencoded", "", "", 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/oauth2/userinfo"+tt.query, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.kind)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			if got := b.Send(r); got.StatusCode != tt.status {
				t.Errorf("status %d: %s", got.StatusCode, servertest.Body(t, got))
			}
		})
	}
}

func TestUserinfoOfRemovedUser(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	token := b.Tokens(nil).AccessToken
	b.Server = servertest.New(t, func(c *authorize.Config) { c.Users = c.Users[1:] })
	if r := b.Userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", r.StatusCode)
	}
}

func TestUserinfoOfClient(t *testing.T) {
	t.Parallel()
	b := servertest.NewBrowser(t, servertest.New(t, nil))
	r := servertest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	if r := b.Userinfo(servertest.Decode[servertest.TokenResponse](t, b.Send(r)).AccessToken); r.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", r.StatusCode)
	}
}

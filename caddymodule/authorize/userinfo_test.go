package authorize_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
)

func TestUserinfo(t *testing.T) {
	tests := []struct {
		scope string
		want  map[string]any
	}{
		{"openid", map[string]any{}},
		{"openid profile", map[string]any{"name": "Alice Adams", "preferred_username": "alice"}},
		{"openid email", map[string]any{"email": "alice@example.org", "email_verified": true}},
		{"openid phone", map[string]any{"phone_number": "+15550100"}},
		{"openid fhirUser", map[string]any{"fhirUser": fhirBase + "/Practitioner/alice"}},
	}
	for _, tt := range tests {
		t.Run(tt.scope, func(t *testing.T) {
			b := newBrowser(t, newServer(t, nil))
			tt.want["sub"] = "alice"
			got := decode[map[string]any](t, b.userinfo(b.tokens(url.Values{"scope": {tt.scope}}).AccessToken))
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestUserinfoRefuses(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	good := b.tokens(nil)
	withoutOpenID := newBrowser(t, b.server).tokens(url.Values{"scope": {"demo.read"}})
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
			r := postRequest("/oauth2/userinfo", nil)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			response := b.send(r)
			challenge := response.Header.Get("WWW-Authenticate")
			if response.StatusCode != tt.status || !strings.HasPrefix(challenge, `Bearer realm="`+issuer+`"`) {
				t.Errorf("status %d, WWW-Authenticate %q", response.StatusCode, challenge)
			}
			if named := strings.Contains(challenge, `error="`+tt.code+`"`); named != (tt.code != "") {
				t.Errorf("WWW-Authenticate %q", challenge)
			}
		})
	}
}

func TestUserinfoOfRemovedUser(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	token := b.tokens(nil).AccessToken
	b.server = newServer(t, func(c *authorize.Config) { c.Users = c.Users[1:] })
	if r := b.userinfo(token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("status %d", r.StatusCode)
	}
}

func TestUserinfoOfClient(t *testing.T) {
	b := newBrowser(t, newServer(t, nil))
	r := postRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	if r := b.userinfo(decode[tokenAnswer](t, b.send(r)).AccessToken); r.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", r.StatusCode)
	}
}

package token_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
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
		{"openid fhirUser", map[string]any{"fhirUser": authorizetest.FHIRBase + "/Practitioner/alice"}},
	}
	for _, tt := range tests {
		t.Run(tt.scope, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			tt.want["sub"] = "alice"
			got := authorizetest.Decode[map[string]any](t, b.Userinfo(b.Tokens(url.Values{"scope": {tt.scope}}).AccessToken))
			if !maps.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestUserinfoRefuses(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	good := b.Tokens(nil)
	withoutOpenID := authorizetest.NewBrowser(t, b.Server).Tokens(url.Values{"scope": {"demo.read"}})
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
			r := authorizetest.PostRequest("/oauth2/userinfo", nil)
			if tt.authorization != "" {
				r.Header.Set("Authorization", tt.authorization)
			}
			response := b.Send(r)
			challenge := response.Header.Get("WWW-Authenticate")
			if response.StatusCode != tt.status || !strings.HasPrefix(challenge, `Bearer realm="`+authorizetest.Issuer+`"`) {
				t.Errorf("status %d, WWW-Authenticate %q", response.StatusCode, challenge)
			}
			if named := strings.Contains(challenge, `error="`+tt.code+`"`); named != (tt.code != "") {
				t.Errorf("WWW-Authenticate %q", challenge)
			}
		})
	}
}

// The access token may be in a form (RFC 6750 §2.2), but not in the query, nor in both form and header.
func TestUserinfoByForm(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
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
				t.Errorf("status %d: %s", got.StatusCode, authorizetest.Body(t, got))
			}
		})
	}
}

func TestUserinfoOfClient(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	if r := b.Userinfo(authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)).AccessToken); r.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", r.StatusCode)
	}
}

// Userinfo returns the claims of each scope (OpenID Connect Core §5.4).
func TestScopeClaims(t *testing.T) {
	t.Parallel()
	tests := []struct {
		scope string
		want  map[string]any
	}{
		{"openid", map[string]any{}},
		{"openid profile", map[string]any{
			"name": "Alice Adams", "family_name": "Adams", "given_name": "Alice", "middle_name": "B", "nickname": "Al",
			"preferred_username": "alice", "profile": "https://alice.example/", "picture": "https://alice.example/p.png",
			"website": "https://alice.example/w", "gender": "female", "birthdate": "1980-02-29", "zoneinfo": "Europe/London",
			"locale": "en-GB", "updated_at": 1.7e9,
		}},
		{"openid email", map[string]any{"email": "alice@example.org", "email_verified": true}},
		{"openid phone", map[string]any{"phone_number": "+15550100", "phone_number_verified": true}},
		{"openid address", map[string]any{"address": map[string]any{"formatted": "1 High St", "locality": "London"}}},
		{"openid fhirUser", map[string]any{"fhirUser": authorizetest.FHIRBase + "/Practitioner/alice"}},
	}
	for _, tt := range tests {
		t.Run(tt.scope, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithAllClaims))
			tt.want["sub"] = "alice"
			token := b.Tokens(url.Values{"scope": {tt.scope}}).AccessToken
			if got := authorizetest.Decode[map[string]any](t, b.Userinfo(token)); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %v\nwant %v", got, tt.want)
			}
		})
	}
}

// address is not a reserved scope in docs/evidence/interface.md, so clients must list it.
func TestAddressMustBeListed(t *testing.T) {
	t.Parallel()
	u := authorizetest.Location(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Authorize(authorizetest.Request(url.Values{"scope": {"openid address"}})))
	if u.Query().Get("error") != "invalid_scope" {
		t.Errorf("%s", u)
	}
}

// The parameter claims requests claims by name (OpenID Connect Core §5.5).
func TestClaimsParameter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, claims      string
		userinfo, idToken []string // expected claims in addition to the standard claims
	}{
		{"for userinfo", `{"userinfo":{"email":null,"given_name":{"essential":true}}}`, []string{"email", "given_name"}, nil},
		{"for the ID token", `{"id_token":{"email":{"essential":true},"auth_time":{"essential":true}}}`, nil, []string{"email"}},
		{"for both", `{"userinfo":{"name":null},"id_token":{"address":null}}`, []string{"name"}, []string{"address"}},
		{"unknown claim", `{"userinfo":{"shoe_size":{"essential":true}}}`, nil, nil},
		{"an unknown member", `{"verified_claims":7}`, nil, nil},
		{"the person who signs in", `{"id_token":{"sub":{"value":"alice"}},"userinfo":{"sub":{"values":["bob","alice"]}}}`, nil, nil},
		{"an acr that is welcome", `{"id_token":{"acr":{"values":["gold"]}}}`, nil, nil},
		{"any acr", `{"id_token":{"acr":{"essential":true}}}`, nil, nil},
		{"nothing", `{}`, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithAllClaims))
			answer := b.Tokens(url.Values{"claims": {tt.claims}})
			for at, check := range map[string]struct {
				got  map[string]any
				want []string
			}{
				"userinfo": {authorizetest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken)), tt.userinfo},
				"ID token": {b.Claims(answer.IDToken), tt.idToken},
			} {
				for _, always := range []string{"sub", "iss", "aud", "iat", "exp", "auth_time", "at_hash", "sid", "amr", "acr"} {
					delete(check.got, always)
				}
				for _, name := range check.want {
					if check.got[name] == nil {
						t.Errorf("%s lacks %s", at, name)
					}
					delete(check.got, name)
				}
				if len(check.got) != 0 {
					t.Errorf("%s contains more claims: %v", at, check.got)
				}
			}
		})
	}
}

func TestClaimsParameterRefused(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, claims, want string }{
		{"no JSON", `{`, "invalid_request"},
		{"a member twice", `{"userinfo":{},"userinfo":{"email":null}}`, "invalid_request"},
		{"a member in two cases", `{"userinfo":{},"UserInfo":{"email":null}}`, "invalid_request"},
		{"no object", `["email"]`, "invalid_request"},
		{"null", `null`, "invalid_request"},
		{"member is not an object", `{"userinfo":"email"}`, "invalid_request"},
		{"a member that is null", `{"userinfo":null}`, "invalid_request"},
		{"claim is not an object", `{"userinfo":{"email":true}}`, "invalid_request"},
		{"essential is not a boolean", `{"userinfo":{"email":{"essential":"yes"}}}`, "invalid_request"},
		{"over 8 KiB", `{"userinfo":{"email":{"value":"` + strings.Repeat("x", 8<<10) + `"}}}`, "invalid_request"},
		{"nobody", `{"id_token":{"sub":{"values":[]}}}`, "login_required"},
		{"two people at once", `{"id_token":{"sub":{"value":"alice"}},"userinfo":{"sub":{"value":"bob"}}}`, "login_required"},
		{"an essential acr", `{"id_token":{"acr":{"essential":true,"values":["gold"]}}}`, "unmet_authentication_requirements"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := authorizetest.Location(t, authorizetest.NewBrowser(t, authorizetest.New(t, nil)).Authorize(authorizetest.Request(url.Values{"claims": {tt.claims}})))
			if got := u.Query().Get("error"); got != tt.want {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}

// Claims cannot be requested by name if the client may not request their scope.
func TestClaimsParameterNeedsScopes(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) {
		authorizetest.WithAllClaims(c)
		c.Clients[0].Scopes = nil
	}))
	answer := b.Tokens(url.Values{"claims": {`{"userinfo":{"address":null,"fhirUser":null},"id_token":{"fhirUser":null}}`}})
	if got := authorizetest.Decode[map[string]any](t, b.Userinfo(answer.AccessToken)); len(got) != 1 {
		t.Errorf("userinfo %v", got)
	}
	if got := b.Claims(answer.IDToken); got["fhirUser"] != nil {
		t.Errorf("ID token %v", got)
	}
}

func TestClaimsParameterDiscovered(t *testing.T) {
	t.Parallel()
	m := authorizetest.Decode[map[string]any](t, authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithAllClaims)).Get("/.well-known/openid-configuration"))
	if m["claims_parameter_supported"] != true || !strings.Contains(authorizetest.JoinStrings(m["scopes_supported"]), "address") {
		t.Errorf("%v", m)
	}
	for _, claim := range []string{"birthdate", "phone_number_verified", "address", "fhirUser"} {
		if !strings.Contains(authorizetest.JoinStrings(m["claims_supported"]), claim) {
			t.Errorf("claims_supported lacks %s", claim)
		}
	}
}

// Invalid user claims are rejected when the configuration is loaded.
func TestUserClaimsAreChecked(t *testing.T) {
	t.Parallel()
	c := authorizetest.Config()
	c.Users[0].Claims = map[string]string{"sub": "bob"}
	if _, err := authorize.New(c); err == nil || !strings.Contains(err.Error(), "alice") {
		t.Errorf("error %v", err)
	}
}

package token_test

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
)

// The response spells scopes as in the request, including SMART 1 scopes.
func TestScopeInResponse(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"user/Patient.read", "user/Patient.rs", "user/*.read offline_access"} {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
		got := b.Tokens(url.Values{"scope": {scope}})
		if got.Scope != scope {
			t.Errorf("%s: %s", scope, got.Scope)
		}
		if got.RefreshToken != "" && b.Refresh(got.RefreshToken, nil).Scope != scope {
			t.Errorf("%s: refreshed %s", scope, got.Scope)
		}
	}
}

func TestDiscoveryOfRefreshTokens(t *testing.T) {
	t.Parallel()
	documents := func(change func(*authorize.Config)) (openid, smart map[string]any) {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, change))
		return authorizetest.Decode[map[string]any](t, b.Get("/.well-known/openid-configuration")), authorizetest.Decode[map[string]any](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	}
	offlineOnly := func(c *authorize.Config) { c.Clients[0].Scopes = append(c.Clients[0].Scopes, "offline_access") }
	tests := []struct {
		name            string
		change          func(*authorize.Config)
		refresh         bool
		offline, online bool
		algorithms      string
	}{
		{"no client may", nil, false, false, false, "RS256"},
		{"one may, offline", offlineOnly, true, true, false, "RS256"},
		{"some may, both", authorizetest.AllowRefreshTokens, true, true, true, "RS256"},
		{"ES256", func(c *authorize.Config) { c.Clients[0].IDTokenAlgorithm = "ES256" }, false, false, false, "RS256 ES256"},
		{"a client that has no flow for it", func(c *authorize.Config) {
			c.Clients[3].Scopes = []string{"offline_access"}
		}, false, false, false, "RS256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			openid, smart := documents(tt.change)
			for name, document := range map[string]map[string]any{"openid": openid, "smart": smart} {
				if got := strings.Contains(authorizetest.JoinStrings(document["grant_types_supported"]), "refresh_token"); got != tt.refresh {
					t.Errorf("%s: grant types %v", name, document["grant_types_supported"])
				}
				if !strings.Contains(authorizetest.JoinStrings(document["token_endpoint_auth_methods_supported"]), "private_key_jwt") || !strings.Contains(authorizetest.JoinStrings(document["token_endpoint_auth_signing_alg_values_supported"]), "ES384") {
					t.Errorf("%s: %v", name, document)
				}
				for scope, want := range map[string]bool{"offline_access": tt.offline, "online_access": tt.online} {
					if got := strings.Contains(authorizetest.JoinStrings(document["scopes_supported"]), scope); got != want {
						t.Errorf("%s: scopes %v", name, document["scopes_supported"])
					}
				}
			}
			capabilities := authorizetest.JoinStrings(smart["capabilities"])
			if strings.Contains(capabilities, "permission-offline") != tt.offline || strings.Contains(capabilities, "permission-online") != tt.online || !strings.Contains(capabilities, "client-confidential-asymmetric") {
				t.Errorf("capabilities %s", capabilities)
			}
			if got := authorizetest.JoinStrings(openid["id_token_signing_alg_values_supported"]); got != tt.algorithms {
				t.Errorf("ID token algorithms %s", got)
			}
		})
	}
}

func TestTokenErrors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change url.Values
		want   string
		status int
	}{
		{"unknown code", url.Values{"code": {"unknown"}}, "invalid_grant", 400},
		{"no code", url.Values{"code": {""}}, "invalid_request", 400},
		{"no grant_type", url.Values{"grant_type": {""}}, "invalid_request", 400},
		{"unknown grant_type", url.Values{"grant_type": {"password"}}, "unsupported_grant_type", 400},
		{"a grant the client may not use", url.Values{"grant_type": {"client_credentials"}}, "unauthorized_client", 400},
		{"another redirect_uri", url.Values{"redirect_uri": {"http://localhost:3000/callback"}}, "invalid_grant", 400},
		{"no redirect_uri", url.Values{"redirect_uri": {""}}, "invalid_request", 400},
		{"another client", url.Values{"client_id": {"strict"}}, "invalid_grant", 400},
		{"unknown client", url.Values{"client_id": {"nobody"}}, "invalid_client", 401},
		{"no client", url.Values{"client_id": {""}}, "invalid_client", 401},
		{"a secret of a public client", url.Values{"client_secret": {"x"}}, "invalid_client", 401},
		{"a token for another resource", url.Values{"resource": {"https://other.example/fhir/R4"}}, "invalid_target", 400}, // RFC 8707 §2.2
		{"and one for this", url.Values{"resource": {authorizetest.FHIRBase, "https://other.example/fhir/R4"}}, "invalid_target", 400},
		{"a parameter twice", url.Values{"code": {"a", "b"}}, "invalid_request", 400},
		{"a parameter over 8 KiB", url.Values{"code": {strings.Repeat("a", 8<<10+1)}}, "invalid_request", 400},
		{"a body over 64 KiB", url.Values{"x": {strings.Repeat("a", 64<<10)}}, "invalid_request", 413},
	}
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	here := url.Values{"resource": {authorizetest.FHIRBase, authorizetest.FHIRBase}}
	code := b.Code(here)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := b.Post("/oauth2/token", authorizetest.CodeForm(code, tt.change))
			if got := authorizetest.Decode[authorizetest.TokenResponse](t, r); got.Error != tt.want || r.StatusCode != tt.status || got.AccessToken != "" {
				t.Errorf("%d %+v", r.StatusCode, got)
			}
			if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Pragma") != "no-cache" {
				t.Errorf("header %v", r.Header)
			}
		})
	}
	if got := b.RequestTokens(authorizetest.CodeForm(code, here)); got.AccessToken == "" {
		t.Errorf("the code was used up by others' mistakes: %+v", got)
	}
}

func TestTokenAcceptsFormsOnly(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	code := b.Code(nil)
	inQuery := authorizetest.PostRequest("/oauth2/token?"+authorizetest.CodeForm(code, nil).Encode(), nil)
	json := authorizetest.PostRequest("/oauth2/token", authorizetest.CodeForm(code, nil))
	json.Header.Set("Content-Type", "application/json")
	for name, r := range map[string]*http.Request{"query": inQuery, "JSON": json} {
		if got := b.Send(r); got.StatusCode < 400 {
			t.Errorf("parameters in %s: %d", name, got.StatusCode)
		}
	}
	if r := b.Get("/oauth2/token?" + authorizetest.CodeForm(code, nil).Encode()); r.StatusCode != http.StatusMethodNotAllowed || r.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d, Allow %q", r.StatusCode, r.Header.Get("Allow"))
	}
}

func TestClientAuthentication(t *testing.T) {
	t.Parallel()
	const id, secret = "confidential", "s3cret/+ %"
	redirect := url.Values{"client_id": {""}, "redirect_uri": {authorizetest.Callback + "?tenant=1"}}
	with := func(change url.Values) url.Values {
		form := url.Values{"client_id": {""}, "redirect_uri": redirect["redirect_uri"]}
		maps.Copy(form, change)
		return form
	}
	tests := []struct {
		name   string
		basic  []string
		change url.Values
		want   string
	}{
		{"basic, form-encoded", []string{url.QueryEscape(id), url.QueryEscape(secret)}, with(nil), ""},
		{"basic, raw", []string{id, secret}, with(nil), ""},
		{"basic with client_id", []string{id, secret}, with(url.Values{"client_id": {id}}), ""},
		{"post", nil, with(url.Values{"client_id": {id}, "client_secret": {secret}}), ""},
		{"basic, wrong secret", []string{id, "wrong"}, with(nil), "invalid_client"},
		{"basic, empty secret", []string{id, ""}, with(nil), "invalid_client"},
		{"basic of a public client", []string{"app", ""}, with(nil), "invalid_client"},
		{"post, wrong secret", nil, with(url.Values{"client_id": {id}, "client_secret": {"wrong"}}), "invalid_client"},
		{"no secret", nil, with(url.Values{"client_id": {id}}), "invalid_client"},
		{"basic and post", []string{id, secret}, with(url.Values{"client_secret": {secret}}), "invalid_request"},
		{"basic with another client_id", []string{id, secret}, with(url.Values{"client_id": {"app"}}), "invalid_request"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			code := b.Code(url.Values{"client_id": {id}, "redirect_uri": redirect["redirect_uri"]})
			r := authorizetest.PostRequest("/oauth2/token", authorizetest.CodeForm(code, tt.change))
			if tt.basic != nil {
				r.SetBasicAuth(tt.basic[0], tt.basic[1])
			}
			response := b.Send(r)
			if got := authorizetest.Decode[authorizetest.TokenResponse](t, response); got.Error != tt.want {
				t.Errorf("%d %+v", response.StatusCode, got)
			}
			challenged := strings.HasPrefix(response.Header.Get("WWW-Authenticate"), "Basic ")
			if wanted := tt.want == "invalid_client" && tt.basic != nil; challenged != wanted {
				t.Errorf("WWW-Authenticate %q", response.Header.Get("WWW-Authenticate"))
			}
		})
	}
}

func TestClientCredentials(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, scope, want, error string }{
		{"a listed scope", "system/*.rs", "system/*.rs", ""},
		{"a part of it", "system/Patient.r", "system/Patient.r", ""},
		{"no scope", "", "system/*.rs", ""},
		{"more than is listed", "system/Patient.cruds user/*.rs", "system/Patient.rs", ""},
		{"nothing that is listed", "system/Patient.cud", "", "invalid_scope"},
		{"a scope that is not of the system", "demo.read", "", "invalid_scope"},
		{"openid", "openid", "", "invalid_scope"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
			r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "scope": {tt.scope}})
			r.SetBasicAuth("service", "hush")
			got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r))
			if got.Error != tt.error || got.Scope != tt.want || got.IDToken != "" || got.RefreshToken != "" {
				t.Fatalf("%+v", got)
			}
			if tt.error != "" {
				return
			}
			if c := b.Claims(got.AccessToken); c["sub"] != "service" || c["client_id"] != "service" || got.ExpiresIn != 300 {
				t.Errorf("expires_in %d, claims %v", got.ExpiresIn, c)
			}
		})
	}
}

func TestClientCredentialsWithoutSystemScope(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, func(c *authorize.Config) { c.Clients[4].Scopes = []string{"demo.read"} }))
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}})
	r.SetBasicAuth("service", "hush")
	if got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)); got.Error != "invalid_scope" {
		t.Errorf("%+v", got)
	}
}

// error_description contains no quotes or backslashes (RFC 6749 §5.2) and nothing sent by the client.
func TestErrorDescription(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, nil))
	r := authorizetest.PostRequest("/oauth2/token", url.Values{"grant_type": {"client_credentials"}, "scope": {`evil/"x`}})
	r.SetBasicAuth("service", "hush")
	if got := authorizetest.Decode[authorizetest.TokenResponse](t, b.Send(r)); got.Description == "" || strings.ContainsAny(got.Description, `"\`) || strings.Contains(got.Description, "evil") {
		t.Errorf("%+v", got)
	}
}

// The cases are modules of the OpenID Foundation's conformance suite, by name.
func TestOIDF(t *testing.T) {
	t.Parallel()
	modules := map[string]func(*testing.T){
		"oidcc-codereuse": func(t *testing.T) { codeReuse(t, 0) },
		"oidcc-codereuse-30seconds": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { codeReuse(t, 30*time.Second) })
		},
		"oidcc-refresh-token": func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
			first := confidentialTokens(b)
			secret := url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}
			second := b.Refresh(first.RefreshToken, secret)
			before, after := b.Claims(first.IDToken), b.Claims(second.IDToken)
			for _, claim := range []string{"iss", "sub", "aud", "auth_time"} {
				if before[claim] != after[claim] {
					t.Errorf("%s: %v, then %v", claim, before[claim], after[claim])
				}
			}
			if r := b.Post("/oauth2/token", authorizetest.RefreshForm(second.RefreshToken, nil)); r.StatusCode != http.StatusBadRequest {
				t.Errorf("with another client: %d", r.StatusCode)
			}
		},
		"oidcc-ensure-client-assertion-with-iss-aud-succeeds": func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, nil))
			r := b.Post("/oauth2/token", authorizetest.AssertionForm(authorizetest.Assertion(t, jose.RS256, map[string]any{"aud": authorizetest.Issuer}, nil), nil))
			if r.StatusCode != http.StatusOK {
				t.Error(r.StatusCode)
			}
		},
	}
	for name, module := range modules {
		t.Run(name, module)
	}
}

// The cases are tests of Inferno's SMART App Launch STU2.2 suite, by id.
func TestInferno(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, r *http.Response) {
		t.Helper()
		if r.StatusCode != http.StatusBadRequest && r.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", r.StatusCode)
		}
	}
	granted := func(t *testing.T, r *http.Response) {
		t.Helper()
		got := authorizetest.Decode[map[string]any](t, r)
		if _, numeric := got["expires_in"].(float64); r.StatusCode != http.StatusOK || !numeric || got["token_type"] != "Bearer" || got["scope"] == nil {
			t.Errorf("%d %v", r.StatusCode, got)
		}
	}
	post := func(t *testing.T, form url.Values) *http.Response {
		return authorizetest.NewBrowser(t, authorizetest.NewBackendServer(t, nil)).Post("/oauth2/token", form)
	}
	refresh := func(t *testing.T, change url.Values) *http.Response {
		b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.AllowRefreshTokens))
		return b.Post("/oauth2/token", authorizetest.RefreshForm(b.Tokens(authorizetest.WithOfflineAccess(nil)).RefreshToken, change))
	}
	tests := map[string]func(*testing.T){
		"token_refresh without scope": func(t *testing.T) { granted(t, refresh(t, nil)) },
		"token_refresh with scope": func(t *testing.T) {
			granted(t, refresh(t, url.Values{"scope": {"openid user/*.rs offline_access"}}))
		},
		"invalid refresh token": func(t *testing.T) {
			refused(t, refresh(t, url.Values{"refresh_token": {"INVALID_REFRESH_TOKEN"}}))
		},
		"backend_services_invalid_grant_type": func(t *testing.T) {
			r := post(t, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, nil), url.Values{"grant_type": {"not_a_grant_type"}}))
			if r.StatusCode != http.StatusBadRequest {
				t.Error(r.StatusCode)
			}
		},
		"backend_services_invalid_client_assertion": func(t *testing.T) {
			refused(t, post(t, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, nil), url.Values{"client_assertion_type": {"not_an_assertion_type"}})))
		},
		"backend_services_invalid_jwt": func(t *testing.T) {
			refused(t, post(t, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, map[string]any{"iss": "not_a_valid_iss"}, nil), nil)))
		},
		"backend_services_auth_request_success RS384": func(t *testing.T) {
			granted(t, post(t, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.RS384, nil, nil), nil)))
		},
		"backend_services_auth_request_success ES384": func(t *testing.T) {
			granted(t, post(t, authorizetest.AssertionForm(authorizetest.Assertion(t, jose.ES384, nil, nil), nil)))
		},
		"token_introspection of an invalid token": func(t *testing.T) {
			b := authorizetest.NewBrowser(t, authorizetest.New(t, authorizetest.WithResourceServer))
			if got := authorizetest.Body(t, authorizetest.SendTokenForm(b, "/oauth2/introspect", "invalid_token_value", "fhir-server", "rs")); strings.TrimSpace(got) != `{"active":false}` {
				t.Error(got)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

package token_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
)

// Test modules of the OpenID Foundation's conformance suite, by their names.
func TestOIDF(t *testing.T) {
	t.Parallel()
	modules := map[string]func(*testing.T){
		"oidcc-codereuse": func(t *testing.T) { codeReuse(t, 0) },
		"oidcc-codereuse-30seconds": func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { codeReuse(t, 30*time.Second) })
		},
		"oidcc-refresh-token": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, servertest.Refreshing))
			first := confidentialTokens(b)
			secret := url.Values{"client_id": {"confidential"}, "client_secret": {"s3cret/+ %"}}
			second := b.Refresh(first.Refresh, secret)
			before, after := b.Claims(first.IDToken), b.Claims(second.IDToken)
			for _, claim := range []string{"iss", "sub", "aud", "auth_time"} {
				if before[claim] != after[claim] {
					t.Errorf("%s: %v, then %v", claim, before[claim], after[claim])
				}
			}
			if r := b.Post("/oauth2/token", servertest.RefreshForm(second.Refresh, nil)); r.StatusCode != http.StatusBadRequest {
				t.Errorf("with another client: %d", r.StatusCode)
			}
		},
		"oidcc-ensure-client-assertion-with-iss-aud-succeeds": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.NewBackend(t, nil))
			r := b.Post("/oauth2/token", servertest.AssertionForm(servertest.Assertion(t, jose.RS256, map[string]any{"aud": servertest.Issuer}, nil), nil))
			if r.StatusCode != http.StatusOK {
				t.Error(r.StatusCode)
			}
		},
	}
	for name, module := range modules {
		t.Run(name, module)
	}
}

// Tests of Inferno's SMART App Launch STU2.2 suite, by their ids.
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
		got := servertest.Decode[map[string]any](t, r)
		if _, numeric := got["expires_in"].(float64); r.StatusCode != http.StatusOK || !numeric || got["token_type"] != "Bearer" || got["scope"] == nil {
			t.Errorf("%d %v", r.StatusCode, got)
		}
	}
	post := func(t *testing.T, form url.Values) *http.Response {
		return servertest.NewBrowser(t, servertest.NewBackend(t, nil)).Post("/oauth2/token", form)
	}
	refresh := func(t *testing.T, change url.Values) *http.Response {
		b := servertest.NewBrowser(t, servertest.New(t, servertest.Refreshing))
		return b.Post("/oauth2/token", servertest.RefreshForm(b.Tokens(servertest.OfflineAccess(nil)).Refresh, change))
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
			r := post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), url.Values{"grant_type": {"not_a_grant_type"}}))
			if r.StatusCode != http.StatusBadRequest {
				t.Error(r.StatusCode)
			}
		},
		"backend_services_invalid_client_assertion": func(t *testing.T) {
			refused(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), url.Values{"client_assertion_type": {"not_an_assertion_type"}})))
		},
		"backend_services_invalid_jwt": func(t *testing.T) {
			refused(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, map[string]any{"iss": "not_a_valid_iss"}, nil), nil)))
		},
		"backend_services_auth_request_success RS384": func(t *testing.T) {
			granted(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.RS384, nil, nil), nil)))
		},
		"backend_services_auth_request_success ES384": func(t *testing.T) {
			granted(t, post(t, servertest.AssertionForm(servertest.Assertion(t, jose.ES384, nil, nil), nil)))
		},
		"token_introspection of an invalid token": func(t *testing.T) {
			b := servertest.NewBrowser(t, servertest.New(t, servertest.ResourceServer))
			if got := servertest.Body(t, servertest.AskAboutToken(b, "/oauth2/introspect", "invalid_token_value", "fhir-server", "rs")); strings.TrimSpace(got) != `{"active":false}` {
				t.Error(got)
			}
		},
	}
	for name, test := range tests {
		t.Run(name, test)
	}
}

package bearer

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
)

// A request without a token reaches the next handler without a body, credentials or the cookies of the gateway, also where
// scopes are off and nothing asks for the metadata anew.
func TestPublicRequestCarriesNothing(t *testing.T) {
	t.Parallel()
	g := &gate{at: address{path: "/fhir/R4"}, headers: guard.NewIdentityHeaders(nil, []string{"*"}), forwardToken: true}
	g.asks = authenticator{at: g.at}
	r := httptest.NewRequest(http.MethodGet, "/fhir/R4/metadata", strings.NewReader("body"))
	r.Header.Set("Authorization", "Bearer x")
	r.Header.Set("Cookie", browser.SessionCookie+"=secret; other=1")
	r = withReplacer(r)
	passed := false
	err := g.serve(httptest.NewRecorder(), r, caddyhttp.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) error {
		passed = true
		body, err := io.ReadAll(r.Body)
		if len(body) > 0 || r.ContentLength > 0 || r.Header.Get("Authorization") != "" || strings.Contains(r.Header.Get("Cookie"), "secret") {
			t.Errorf("body %q of %d bytes, header %v", body, r.ContentLength, r.Header)
		}
		return err
	}))
	if err != nil || !passed {
		t.Errorf("passed: %v, %v", passed, err)
	}
}

// Without a token, any other request ends at the gate.
func TestGateWithoutToken(t *testing.T) {
	t.Parallel()
	g := &gate{at: address{path: "/fhir/R4"}, headers: guard.NewIdentityHeaders(nil, nil)}
	g.asks = authenticator{at: g.at}
	err := g.serve(httptest.NewRecorder(), withReplacer(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil)),
		caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return errors.New("passed") }))
	if refused, ok := errors.AsType[caddyhttp.HandlerError](err); !ok || refused.StatusCode != http.StatusUnauthorized {
		t.Error(err)
	}
}

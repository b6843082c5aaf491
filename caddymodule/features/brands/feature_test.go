package brands_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// Caddyfile errors contain the line number and the invalid word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	app := gatewaytest.AppCaddyfile
	gatewaytest.CaddyfileErrors{
		{"without a file", app("user_access_brands"), 4, "user_access_brands has no value"},
		{"in a file that is not there", app("user_access_brands missing.json"), 4, "missing.json"},
		{"no JSON", app("user_access_brands feature_test.go"), 4, "feature_test.go"},
		{"no Bundle", app("fhir_base /r4\n\t\tuser_access_brands testdata/incomplete.json"), 5, "Bundle.timestamp: is missing"},
		{"no such brand", app("user_access_brands testdata/network.json {\n\t\t\tprimary https://x.example\n\t\t}"), 4, "https://x.example"},
		{"of another server", app("user_access_brands testdata/network.json"), 4, "https://x.example/fhir/R4"},
	}.Check(t)
}

// In a complete gateway, scripts from any origin can read the Bundle (CORS).
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("user_access_brands testdata/network.json {\n\t\t\tprimary https://hospital.example\n\t\t}"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, brandsPath, "*", "a-token")
}

func get(b *brands.Bundle, header http.Header) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	r.Header = header
	b.ServeHTTP(w, r)
	return w
}

func TestServe(t *testing.T) {
	t.Parallel()
	b, err := brands.Parse([]byte(network(t)), fhirBase, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := get(b, nil)
	tag := r.Header().Get("ETag")
	if r.Body.String() != network(t) || !strings.HasPrefix(tag, `W/"`) || r.Header().Get("Content-Type") != "application/fhir+json" {
		t.Errorf("header %v, body %s", r.Header(), r.Body)
	}
	if got := r.Header().Get("Last-Modified"); got != "Sun, 01 Mar 2026 08:00:00 GMT" {
		t.Errorf("Last-Modified %q", got)
	}
	for condition, want := range map[string]int{
		tag: 304, strings.TrimPrefix(tag, "W/"): 304, `"other", ` + tag: 304, "*": 304, `W/"other"`: 200,
	} {
		if r := get(b, http.Header{"If-None-Match": {condition}}); r.Code != want || want == 304 && r.Body.Len() > 0 {
			t.Errorf("%s: status %d", condition, r.Code)
		}
	}
}

// branded returns a configuration change that adds brands.
func branded(t testing.TB) func(*authorize.Config) {
	feature := &brands.UserAccessBrands{Bundle: []byte(network(t)), Primary: &smart.Identifier{System: brands.URISystem, Value: "https://hospital.example"}}
	return func(c *authorize.Config) {
		if err := feature.Configure(&fhirapp.App{Issuer: authorizetest.Issuer, FHIRBase: c.FHIRBasePath}, c); err != nil {
			t.Fatal(err)
		}
	}
}

const brandsPath = "/fhir/R4/.well-known/user-access-brands"

func TestUserAccessBrands(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, branded(t)))
	m := authorizetest.Decode[smart.Configuration](t, b.Get("/fhir/R4/.well-known/smart-configuration"))
	if m.UserAccessBrandBundle != authorizetest.Issuer+brandsPath {
		t.Errorf("bundle %q", m.UserAccessBrandBundle)
	}
	if got := m.UserAccessBrandIdentifier; got == nil || *got != (smart.Identifier{System: "urn:ietf:rfc:3986", Value: "https://hospital.example"}) {
		t.Errorf("identifier %v", got)
	}
	r := b.Get(brandsPath)
	if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "application/fhir+json" {
		t.Errorf("status %d, header %v", r.StatusCode, r.Header)
	}
	if got := authorizetest.Decode[map[string]any](t, r); got["resourceType"] != "Bundle" || got["timestamp"] == "" {
		t.Errorf("%v", got)
	}
	head := b.Send(httptest.NewRequest(http.MethodHead, brandsPath, nil))
	if head.StatusCode != http.StatusOK || head.Header.Get("ETag") != r.Header.Get("ETag") || authorizetest.Body(t, head) != "" {
		t.Errorf("HEAD: %d, %v", head.StatusCode, head.Header)
	}
	again := httptest.NewRequest(http.MethodGet, brandsPath, nil)
	again.Header.Set("If-None-Match", r.Header.Get("ETag"))
	if got := b.Send(again); got.StatusCode != http.StatusNotModified {
		t.Errorf("again: %d", got.StatusCode)
	}
}

// Scripts of every origin can read the Bundle (CORS), and browsers can cache it by its entity tag.
func TestUserAccessBrandsCORS(t *testing.T) {
	t.Parallel()
	b := authorizetest.NewBrowser(t, authorizetest.New(t, branded(t)))
	r := authorizetest.SendFrom(b, "https://anybody.example", http.MethodGet, brandsPath, nil)
	if exposed := r.Header.Get("Access-Control-Expose-Headers"); r.Header.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(strings.ToLower(exposed), "etag") {
		t.Errorf("%v", r.Header)
	}
	preflight := httptest.NewRequest(http.MethodOptions, brandsPath, nil)
	preflight.Header = http.Header{"Origin": {"https://anybody.example"}, "Access-Control-Request-Method": {"GET"}, "Access-Control-Request-Headers": {"if-none-match"}}
	if got := b.Send(preflight); got.Header.Get("Access-Control-Allow-Origin") != "*" || got.Header.Get("Access-Control-Allow-Headers") != "if-none-match" {
		t.Errorf("preflight: %v", got.Header)
	}
}

func TestNoUserAccessBrands(t *testing.T) {
	t.Parallel()
	server := authorizetest.New(t, nil)
	m := authorizetest.Decode[map[string]any](t, authorizetest.NewBrowser(t, server).Get("/fhir/R4/.well-known/smart-configuration"))
	if server.Serves(brandsPath) || m["user_access_brand_bundle"] != nil || m["user_access_brand_identifier"] != nil {
		t.Errorf("%v", m)
	}
}

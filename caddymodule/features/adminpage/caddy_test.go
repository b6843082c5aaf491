package adminpage

import (
	"bytes"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

var update = flag.Bool("update", false, "write the golden file anew")

func TestAdapt(t *testing.T) {
	t.Parallel()
	gatewaytest.CheckGolden(t, "testdata/adapt.caddyfiletest", *update)
}

// A wrong Caddyfile names the line and the word.
func TestCaddyfileErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lines, word string }{
		{"without a scope", "admin_page", "admin_page"},
		{"a scope of SMART", "admin_page user/*.rs", "user/*.rs"},
		{"a reserved scope", "admin_page openid", "openid"},
		{"two scopes", "admin_page a b", "b"},
	} {
		t.Run(tt.name, func(t *testing.T) { gatewaytest.CheckCaddyfileError(t, gatewaytest.AppBlock(tt.lines), 4, tt.word) })
	}
}

// A page without administrators is warned of, and a scope that cannot be granted is an error.
func TestConfigure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, scope, given string
		warns, fails       bool
	}{
		{"for nobody", "fhir-admin", "user/*.rs", true, false},
		{"for somebody", "fhir-admin", "fhir-admin", false, false},
		{"no scope of the site's own", "user/*.rs", "user/*.rs", false, true},
		{"no scope", "", "user/*.rs", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			c := authorize.Config{
				Logger: slog.New(slog.NewTextHandler(&text, nil)), ScopeLimits: []scopelimit.Row{{By: "any", Scopes: []string{tt.given}}},
			}
			err := (&AdminPage{Scope: tt.scope}).Configure(new(fhirapp.App), &c)
			if warned := strings.Contains(text.String(), "nobody may open the admin_page"); warned != tt.warns || (err != nil) != tt.fails {
				t.Errorf("%q, %v", text.String(), err)
			}
		})
	}
}

// Metrics know the endpoint.
func TestEndpointHasName(t *testing.T) {
	t.Parallel()
	if name := endpoint.Name(path); !slices.Contains(endpoint.Names(), name) {
		t.Errorf("%q is not among the endpoints", name)
	}
}

// No script of another origin reads the page.
func TestCORS(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("admin_page fhir-admin\n\t\ttest_manager"))
	gatewaytest.CheckCORS(t, g, http.MethodGet, path, "", "")
}

package bearer

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
)

// trustingSite is a site without the global option fhir, whose fhir_bearer trusts another issuer.
func trustingSite(address, options string) string {
	return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\n" + address + " {\n\tfhir_bearer {\n\t\ttrust https://login.example api\n\t\t" + options + "\n\t}\n\trespond ok\n}\n"
}

// Without the fhir app, links have the URL of the site, or the one that is told. Where neither tells it, nothing starts.
func TestURLOfAPIWithoutApp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, address, options, want string }{
		{"a site's", "https://fhir.example", "", "https://fhir.example/fhir/R4"},
		{"with a port", "https://fhir.example:8443", "fhir_base /r4", "https://fhir.example:8443/r4"},
		{"on loopback without TLS", "http://127.0.0.1:8080", "", "http://127.0.0.1:8080/fhir/R4"},
		{"an IPv6 address", "https://[2001:db8::1]", "", "https://[2001:db8::1]/fhir/R4"},
		{"told", "http://:8080", "fhir_base https://fhir.example/r4", "https://fhir.example/r4"},
		{"told beside the site's", "https://10.0.0.1:8443", "fhir_base https://fhir.example/fhir/R4", "https://fhir.example/fhir/R4"},
		{"unknown, and not needed", "http://:8080", "scopes off", ""},
		{"any name", "http://:8080", "", "error"},
		{"without TLS, so behind a proxy", "http://fhir.example:8080", "", "error"},
		{"two names", "https://a.example, https://b.example", "", "error"},
		{"any subdomain", "https://*.example", "", "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bearer, err := startedBearer(t, string(caddyfile.Format([]byte(trustingSite(tt.address, tt.options)))))
			switch {
			case tt.want == "error":
				if err == nil || !strings.Contains(err.Error(), "say it with fhir_base https://") {
					t.Errorf("starts: %v", err)
				}
			case err != nil:
				t.Error(err)
			case tt.want != "":
				bearer.locate()
				if bearer.gate.enforced.enforcer.BaseURL != tt.want || bearer.gate.metadata.Changes.BaseURL != tt.want {
					t.Errorf("%q, %q, want %q", bearer.gate.enforced.enforcer.BaseURL, bearer.gate.metadata.Changes.BaseURL, tt.want)
				}
			}
		})
	}
}

// startedBearer is the one fhir_bearer of a configuration whose sites are checked as at a start.
func startedBearer(t *testing.T, text string) (*Bearer, error) {
	t.Helper()
	ctx := gatewaytest.New(t, text).Context
	sites, err := placement.Checks(ctx)
	if err != nil {
		t.Fatal(err)
	}
	app, err := ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range app.(*caddyhttp.App).Servers["srv0"].Routes {
		if h := guardIn(route); h != nil {
			return h, sites.Start()
		}
	}
	t.Fatal("no fhir_bearer")
	return nil, nil
}

// guardIn is the fhir_bearer in a route, or nil.
func guardIn(route caddyhttp.Route) *Bearer {
	for _, handler := range route.Handlers {
		switch h := handler.(type) {
		case *Bearer:
			return h
		case *caddyhttp.Subroute:
			for _, nested := range h.Routes {
				if found := guardIn(nested); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

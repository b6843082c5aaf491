package caddymodule

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// siteWith is a Caddyfile of one site, with the global option fhir and a body.
func siteWith(issuer, address, body string) string {
	return "{\n\tauto_https disable_redirects\n\tskip_install_trust\n\tfhir {\n\t\tissuer " + issuer + "\n\t}\n}\n\n" +
		address + " {\n\t" + strings.ReplaceAll(body, "\n", "\n\t") + "\n}\n"
}

const guardedAPI = "fhir_authorize\n@fhir path /fhir/R4 /fhir/R4/*\nhandle @fhir {\n\tfhir_bearer\n\tfhir_expand\n\treverse_proxy 127.0.0.1:1\n}"

// Where a handler stands in vain, the configuration loads and a warning says what to
// do; where all is well, there is none.
func TestCheckSites(t *testing.T) {
	const here = "https://localhost:8443"
	tests := []struct {
		name, issuer, address, body string
		want                        []string
	}{
		{"as it should be", here, here, guardedAPI, nil},
		{"all in one block", here, here, "fhir_authorize\nfhir_bearer\nfhir_expand\nrespond 404", nil},
		{"shorthand matcher", here, here, "fhir_authorize\nfhir_bearer /fhir/R4*\nrespond 404", nil},
		{"site of many hosts", "https://a.example", "https://*.example", guardedAPI, nil},
		{"site of any host", "https://a.example", "https://", guardedAPI, nil},
		{"behind a proxy that has TLS", "https://a.example", "http://a.example:8080", guardedAPI, nil},
		{"prefix that is stripped", here, here, "fhir_authorize\nhandle_path /hapi/* {\n\tfhir_bearer\n\trespond ok\n}", nil},
		{"whole site guarded, default elsewhere", here, here, guardedAPI + "\nhandle {\n\trespond 404\n}", nil},
		{"issuer without the port", "https://localhost", here, guardedAPI, []string{"issuer https://localhost is not the address"}},
		{"issuer of another host", "https://a.example", "https://b.example", guardedAPI, []string{"issuer https://a.example", "b.example"}},
		{"no fhir_authorize", here, here, "fhir_bearer\nrespond 404", []string{"no site has fhir_authorize"}},
		{"matcher above the base", here, here, "fhir_authorize\nhandle /fhir/* {\n\tfhir_bearer\n\trespond ok\n}", []string{"fhir_bearer stands at /fhir/*", "fhir_base"}},
		{"matcher beside the base", here, here, "fhir_authorize\nfhir_expand /api/*\nrespond ok", []string{"fhir_expand stands at /api/*", "fhir_base"}},
		{"fhir_authorize within what is guarded", here, here, "fhir_bearer\nhandle {\n\tfhir_authorize\n}", []string{"fhir_bearer stands before fhir_authorize"}},
		{"fhir_authorize after the guard in a route", here, here, "route {\n\tfhir_bearer\n\tfhir_authorize\n}", []string{"fhir_bearer stands before fhir_authorize"}},
		{"fhir_expand after a handle", here, here, "fhir_authorize\nhandle {\n\treverse_proxy 127.0.0.1:1\n}\nfhir_expand", []string{"fhir_expand is never asked"}},
		{"fhir_expand beside the handle of the API", here, here, "fhir_authorize\nhandle /fhir/R4/* {\n\tfhir_bearer\n\treverse_proxy 127.0.0.1:1\n}\nfhir_expand", []string{"fhir_expand is never asked"}},
		{"fhir_expand beside the handle of something else", here, here, "fhir_authorize\nhandle /docs/* {\n\trespond ok\n}\nfhir_expand\nreverse_proxy 127.0.0.1:1", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t, siteWith(tt.issuer, tt.address, tt.body))
			app, err := g.ctx.App("http")
			if err != nil {
				t.Fatal(err)
			}
			warnings := strings.Join(checkSites(app.(*caddyhttp.App), tt.issuer), "\n")
			if len(tt.want) == 0 && warnings != "" {
				t.Errorf("warned: %s", warnings)
			}
			for _, want := range tt.want {
				if !strings.Contains(warnings, want) || strings.Count(warnings, "\n") > 0 {
					t.Errorf("got %q, want one line with %q", warnings, want)
				}
			}
		})
	}
}

// Caddyfile.example, from which people start, is as it should be.
func TestExampleHasNoWarnings(t *testing.T) {
	app, err := exampleGateway(t, nil).ctx.App("http")
	if err != nil {
		t.Fatal(err)
	}
	if warnings := checkSites(app.(*caddyhttp.App), "https://localhost:8443"); len(warnings) > 0 {
		t.Errorf("%q", warnings)
	}
}

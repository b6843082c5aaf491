package fhirapp

import (
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/authorizetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// A missing secret is an error that names the variable or file, and says why.
func TestResolveSecret(t *testing.T) {
	t.Setenv("SET", "s3cret")
	t.Setenv("EMPTY", "")
	folder := t.TempDir()
	full, empty := gatewaytest.WriteFile(t, "full", "s3cret\r\n"), gatewaytest.WriteFile(t, "empty", "\n")
	tests := []struct{ name, secret, want, fault string }{
		{"literal", "s3cret", "s3cret", ""},
		{"none", "", "", ""},
		{"variable", "{env.SET}", "s3cret", ""},
		{"variable within", "a-{env.SET}-b", "a-s3cret-b", ""},
		{"file", "{file." + full + "}", "s3cret", ""},
		{"variable that is not set", "{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"variable that is empty", "{env.EMPTY}", "", "{env.EMPTY}: the environment variable is empty"},
		{"second of two", "{env.SET}{env.NONESUCH}", "", "{env.NONESUCH}: the environment variable is not set"},
		{"file that is not there", "{file." + folder + "/nonesuch}", "", "nonesuch}: open " + folder + "/nonesuch: no such file or directory"},
		{"file that is a folder", "{file." + folder + "}", "", "is a directory"},
		{"file that is empty", "{file." + empty + "}", "", "the file is empty"},
		{"placeholder that is none", "{secret}", "", "unrecognized placeholder {secret}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := option.ResolveSecret("secret", tt.secret)
			if tt.fault == "" && (err != nil || got != tt.want) {
				t.Errorf("got %q, %v", got, err)
			}
			if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("error %v, want one with %q", err, tt.fault)
			}
		})
	}
}

// What a client sends stays text where it looks like a placeholder of Caddy's: sent
// back, shown, or set for the next handler.
func TestPlaceholdersOfClientsStayText(t *testing.T) {
	t.Setenv("REGRESSION_SECRET", "expanded-secret")
	const placeholder = "{env.REGRESSION_SECRET}{file./etc/hostname}{http.request.host}"
	const openID = "openid user/*.rs"
	g := newGateway(t, gatewaytest.ExampleText(t, "fhir_expand\n", `respond "{http.auth.user.id} {http.auth.user.client_id} {http.auth.user.scope} {http.request.header.X-Request-Id}"
`))
	state := g.Get("/oauth2/authorize?"+url.Values{
		"client_id": {"demo-app"}, "redirect_uri": {gatewaytest.DemoCallback}, "scope": {"nonsense"}, "state": {placeholder},
	}.Encode(), "").Header.Get("Location")
	if u, err := url.Parse(state); err != nil || u.Query().Get("state") != placeholder {
		t.Errorf("state: %s", state)
	}
	page := gatewaytest.Read(t, g.Get(g.Get("/oauth2/authorize?"+gatewaytest.DemoRequest().Encode()+"&login_hint="+url.QueryEscape(placeholder), "").Header.Get("Location"), ""))
	if name := authorizetest.ReadForm(page).Fields.Get("username"); name != placeholder {
		t.Errorf("sign-in page with %q: %s", name, page)
	}
	if got, want := gatewaytest.Read(t, g.Get("/fhir/R4/Patient", g.Token(), "X-Request-Id", placeholder)), "alice demo-app "+openID+" "+placeholder; got != want {
		t.Errorf("for the next handler: %q, want %q", got, want)
	}
	if got := gatewaytest.Read(t, g.Get("/fhir/R4/Patient?x="+url.QueryEscape(placeholder), placeholder)); strings.Contains(got, "expanded") {
		t.Errorf("outcome: %s", got)
	}
}

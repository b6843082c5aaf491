package gateway

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/bearer"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/outcome"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

// withSite returns Caddyfile.example with its site replaced.
func withSite(t *testing.T, site string, oldnew ...string) string {
	t.Helper()
	text := gatewaytest.ExampleText(t, oldnew...)
	return text[:strings.Index(text, "\nhttps://localhost:8443 {")] + "\nhttps://localhost:8443 {\n" + site + "\n}\n"
}

// fhirServer starts a server that responds to every request with the received path. It returns the server's address.
func fhirServer(t *testing.T) string {
	t.Helper()
	return gatewaytest.Backend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"Patient","id":"p01","implicitRules":"`+r.URL.Path+`","language":"`+r.Header.Get("X-Own")+map[bool]string{true: " with a token"}[r.Header.Get("Authorization") != ""]+`"}`)
	}))
}

// The directive alone provides sign-in, requires tokens and expands value sets. Other paths get 404.
func TestGateway(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, withSite(t, "\tfhir_gateway "+fhirServer(t)+"/fhir/R4 {\n\t\treverse_proxy {\n\t\t\theader_up X-Own own\n\t\t}\n\t\tfhir_bearer {\n\t\t\tforward_header fhir Authorization\n\t\t}\n\t}"))
	token := g.Token()
	for _, tt := range []struct {
		name, path, token string
		status            int
		has               string
	}{
		{"a record", "/fhir/R4/Patient/p01", token, http.StatusOK, `"implicitRules":"/fhir/R4/Patient/p01","language":"own with a token"`},
		{"no token", "/fhir/R4/Patient/p01", "", http.StatusUnauthorized, `"resourceType":"OperationOutcome"`},
		{"a value set", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender", token, http.StatusOK, `"code":"male"`},
		{"keys", "/.well-known/jwks.json", "", http.StatusOK, `"keys"`},
		{"anything else", "/", "", http.StatusNotFound, ""},
		{"beside the FHIR base", "/fhir/R4x/Patient/p01", token, http.StatusNotFound, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := g.Get(tt.path, tt.token)
			if text := gatewaytest.ReadBody(t, r); r.StatusCode != tt.status || !strings.Contains(text, tt.has) {
				t.Errorf("%d %.300s", r.StatusCode, text)
			}
		})
	}
}

// Routes that precede the directive in the site remain effective.
func TestGatewayIsLast(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, withSite(t, "\tfhir_gateway "+fhirServer(t)+"\n\trespond /about \"a hospital\""))
	if got := gatewaytest.ReadBody(t, g.Get("/about", "")); got != "a hospital" {
		t.Errorf("%q", got)
	}
}

// The directive uses the FHIR base of the global option fhir.
func TestGatewayBase(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, withSite(t, "\tfhir_gateway http://"+fhirServer(t)+"/r4/", "fhir_base /fhir/R4", "fhir_base /r4"))
	if r := g.Get("/r4/Patient/p01", g.Token()); r.StatusCode != http.StatusOK {
		t.Errorf("%d", r.StatusCode)
	}
	if r := g.Get("/fhir/R4/Patient/p01", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("elsewhere: %d", r.StatusCode)
	}
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	for backend, want := range map[string]string{
		"hapi:8080":                  "hapi:8080",
		"hapi:8080/fhir":             "hapi:8080",
		"https://fhir.example/fhir/": "https://fhir.example",
		"[::1]:8080":                 "[::1]:8080",
		"unix//run/fhir.sock":        "unix//run/fhir.sock",
		"unix+h2c//run/fhir.sock":    "unix+h2c//run/fhir.sock",
	} {
		if got, err := upstreamAddress(backend, "/fhir"); got != want || err != nil {
			t.Errorf("%s: %q, %v", backend, got, err)
		}
	}
}

func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	site := func(lines string) string {
		return "{\n\tfhir {\n\t\tissuer https://x.example\n\t}\n}\nx.example {\n\t" + lines + "\n}\n"
	}
	gatewaytest.CaddyfileErrors{
		{"no backend", site("fhir_gateway"), 7, "requires the address of the FHIR server"},
		{"two", site("fhir_gateway a:1 b:1"), 7, "b:1"},
		{"another path", site("fhir_gateway hapi:8080/fhir"), 7, "set fhir_base /fhir in the global option fhir"},
		{"a query", site("fhir_gateway http://hapi:8080?x"), 7, "must be host:port"},
		{"an unknown part", site("fhir_gateway hapi:8080 {\n\t\tfhir_bearr\n\t}"), 8, "did you mean fhir_bearer?"},
		{"a part twice", site("fhir_gateway hapi:8080 {\n\t\tfhir_bearer\n\t\tfhir_bearer\n\t}"), 9, "duplicate fhir_bearer"},
		{"a part with an address", site("fhir_gateway hapi:8080 {\n\t\treverse_proxy b:1\n\t}"), 8, "accepts only a block inside fhir_gateway"},
		{"an unknown option of a part", site("fhir_gateway hapi:8080 {\n\t\tfhir_bearer {\n\t\t\tno_such_option\n\t\t}\n\t}"), 9, "no_such_option"},
		{"no app and no trust", "x.example {\n\tfhir_gateway hapi:8080\n}\n", 2, "fhir global option"},
	}.Check(t)
}

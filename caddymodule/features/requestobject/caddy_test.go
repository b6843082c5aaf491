package requestobject_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	_ "github.com/caddy-fhir/caddy-fhir/caddymodule/modules/authorization"
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
	client := func(lines string) string { return gatewaytest.AppBlock("client app {\n\t\t\t" + lines + "\n\t\t}") }
	for _, tt := range []struct {
		name, caddyfile string
		line            int
		word            string
	}{
		{"unknown word", client("request_objects always"), 5, "always"},
		{"two words", client("request_objects required required"), 5, "required"},
		{"twice", client("request_objects\n\t\t\trequest_objects"), 6, "duplicate request_objects"},
		{"required without keys", client("request_objects required"), 6, "must be signed"},
	} {
		t.Run(tt.name, func(t *testing.T) { gatewaytest.CheckCaddyfileError(t, tt.caddyfile, tt.line, tt.word) })
	}
}

// The server of a Caddyfile opens request objects of the clients that may send them.
func TestGateway(t *testing.T) {
	t.Parallel()
	g := gatewaytest.New(t, gatewaytest.AuthorizationServer("client app {\n\t\t\tredirect_uri https://app.example.org/callback\n\t\t\trequest_objects\n\t\t}"))
	if text := gatewaytest.Read(t, g.Get("/.well-known/openid-configuration", "")); !strings.Contains(text, `"request_parameter_supported":true`) {
		t.Error(text)
	}
	r := g.Get("/oauth2/authorize?client_id=app&response_type=code&redirect_uri=https://app.example.org/callback&request=eyJ", "")
	if to := r.Header.Get("Location"); !strings.Contains(to, "error=invalid_request_object") {
		t.Errorf("%d to %q", r.StatusCode, to)
	}
}

package fhirapp

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// failuresOf loads a Caddyfile, sends a request, and returns the lines of its log at
// error level that are about it.
func failuresOf(t *testing.T, caddyfile, path, token string) (status int, lines []map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy.log")
	caddyfile = strings.Replace(caddyfile, gatewaytest.ExampleLog, "", 1)
	caddyfile = strings.Replace(caddyfile, "\tskip_install_trust\n", "\tskip_install_trust\n\tlog {\n\t\toutput file "+file+"\n\t\tlevel ERROR\n\t}\n", 1)
	g := newGateway(t, caddyfile)
	if token == "alice" {
		token = g.Token()
	}
	status = g.Get(path, token).StatusCode
	return status, logLines(t, file)
}

// A failure is logged once, at error level and with its cause, whatever renders it and
// whatever the client is told. Not in parallel: Caddy's default logger is the process's, and
// gateways of other tests would write into the same file.
func TestFailuresAreLogged(t *testing.T) {
	const outcome, another = "	handle_errors {\n\t\tfhir_outcome\n\t}\n", "	handle_errors {\n\t\trespond \"sorry\"\n\t}\n"
	down := httptest.NewUnstartedServer(http.NotFoundHandler())
	down.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	down.StartTLS() // with a certificate that nobody trusts
	t.Cleanup(down.Close)
	example := gatewaytest.ExampleText(t, "", "")
	trust := gatewaytest.ExampleText(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+down.URL+"\n\t\t}\n")
	const unknown, incomplete = "/fhir/R4/ValueSet/$expand?url=http://x.example/vs", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/observation-codes"
	foreignToken := gatewaytest.NewIssuer(t)
	foreignToken.URL = down.URL
	upstream := frontCaddyfile("upstream "+down.URL+"/r4", gatewaytest.NoBackend)
	proxy := "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\treverse_proxy " + gatewaytest.NoBackend + "\n" + outcome + "}\n"
	for _, tt := range []struct {
		name, caddyfile, path, token string
		status                       int
		cause, logger                string
	}{
		{"the backend is down", example, "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"rendered by another handler", strings.Replace(example, outcome, another, 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"rendered without an error route", strings.Replace(example, outcome, "", 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"an expansion of the backend that is down", example, unknown, "alice", 502, "fhir.sock", "http.handlers.fhir_expand"},
		{"the same, hidden by what is missing here", example, incomplete, "alice", 422, "fhir.sock", "http.handlers.fhir_expand"},
		{"an upstream's TLS fails", upstream, unknown, "", 502, "certificate", "http.handlers.fhir_expand"},
		{"an upstream's TLS fails, for what is incomplete here", upstream, incomplete, "", 502, "certificate", "http.handlers.fhir_expand"},
		{"a trusted issuer's TLS fails", trust, "/fhir/R4/Patient", foreignToken.Token(t, "https://localhost:8443/fhir/R4"), 503, "certificate", "http.handlers.fhir_bearer"},
		{"below the FHIR base, by fhir_outcome alone", proxy, "/fhir/R4/Patient", "", 502, "fhir.sock", "http.handlers.reverse_proxy"},
		{"elsewhere, passed on by fhir_outcome", proxy, "/elsewhere", "", 502, "fhir.sock", "http.handlers.reverse_proxy"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, lines := failuresOf(t, tt.caddyfile, tt.path, tt.token)
			if len(lines) != 1 || lines[0]["level"] != "error" {
				t.Fatalf("%d lines: %v", len(lines), lines)
			}
			if lines[0]["logger"] != tt.logger {
				t.Errorf("logged by %v, want %s", lines[0]["logger"], tt.logger)
			}
			if cause, _ := lines[0]["error"].(string); !strings.Contains(cause, tt.cause) {
				t.Errorf("logged as %v", lines[0])
			}
			if status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
		})
	}
}

// Refusals and clients' mistakes are not logged as failures. Not in parallel, either.
func TestRefusalsAreNoFailures(t *testing.T) {
	for path, want := range map[string]int{"/fhir/R4/Patient": 401, "/nothing": 404} {
		if status, lines := failuresOf(t, gatewaytest.ExampleText(t, "", ""), path, ""); status != want || len(lines) > 0 {
			t.Errorf("%s: %d, logged %v", path, status, lines)
		}
	}
}

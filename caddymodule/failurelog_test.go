package caddymodule

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// failuresOf loads a Caddyfile, sends a request, and returns the lines of its log at
// error level that are about it.
func failuresOf(t *testing.T, caddyfile, path, token string) (status int, lines []map[string]any) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "caddy.log")
	caddyfile = strings.Replace(caddyfile, exampleLog, "", 1)
	caddyfile = strings.Replace(caddyfile, "\tskip_install_trust\n", "\tskip_install_trust\n\tlog {\n\t\toutput file "+file+"\n\t\tlevel ERROR\n\t}\n", 1)
	g := newGateway(t, caddyfile)
	if token == "alice" {
		token = g.token()
	}
	status = g.Get(path, token).StatusCode
	return status, logLines(t, file)
}

// A failure is logged once, at error level and with its cause, whatever renders it and
// whatever the client is told.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	const outcome, another = "	handle_errors {\n\t\tfhir_outcome\n\t}\n", "	handle_errors {\n\t\trespond \"sorry\"\n\t}\n"
	down := httptest.NewUnstartedServer(http.NotFoundHandler())
	down.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	down.StartTLS() // with a certificate that nobody trusts
	t.Cleanup(down.Close)
	example := exampleWith(t, "", "")
	trust := exampleWith(t, "fhir_bearer\n", "fhir_bearer {\n\t\t\ttrust "+down.URL+"\n\t\t}\n")
	const unknown, incomplete = "/fhir/R4/ValueSet/$expand?url=http://x.example/vs", "/fhir/R4/ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/observation-codes"
	foreignToken := startKeycloak(t)
	foreignToken.URL = down.URL
	upstream := frontCaddyfile("upstream "+down.URL+"/r4", gatewaytest.NoBackend)
	proxy := "{\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n\nhttps://localhost:8443 {\n\treverse_proxy " + gatewaytest.NoBackend + "\n" + outcome + "}\n"
	for _, tt := range []struct {
		name, caddyfile, path, token string
		status                       int
		cause                        string
	}{
		{"the backend is down", example, "/fhir/R4/Patient", "alice", 502, "fhir.sock"},
		{"rendered by another handler", strings.Replace(example, outcome, another, 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock"},
		{"rendered without an error route", strings.Replace(example, outcome, "", 1), "/fhir/R4/Patient", "alice", 502, "fhir.sock"},
		{"an expansion of the backend that is down", example, unknown, "alice", 502, "fhir.sock"},
		{"the same, hidden by what is missing here", example, incomplete, "alice", 422, "fhir.sock"},
		{"an upstream's TLS fails", upstream, unknown, "", 502, "certificate"},
		{"an upstream's TLS fails, for what is incomplete here", upstream, incomplete, "", 502, "certificate"},
		{"a trusted issuer's TLS fails", trust, "/fhir/R4/Patient", foreignToken.token(t, "https://localhost:8443/fhir/R4"), 503, "certificate"},
		{"below the FHIR base, by fhir_outcome alone", proxy, "/fhir/R4/Patient", "", 502, "fhir.sock"},
		{"elsewhere, passed on by fhir_outcome", proxy, "/elsewhere", "", 502, "fhir.sock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, lines := failuresOf(t, tt.caddyfile, tt.path, tt.token)
			if len(lines) != 1 || lines[0]["level"] != "error" {
				t.Fatalf("%d lines: %v", len(lines), lines)
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

// Refusals and clients' mistakes are not logged as failures.
func TestRefusalsAreNoFailures(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{"/fhir/R4/Patient": 401, "/nothing": 404} {
		if status, lines := failuresOf(t, exampleWith(t, "", ""), path, ""); status != want || len(lines) > 0 {
			t.Errorf("%s: %d, logged %v", path, status, lines)
		}
	}
}

// An outage does not flood the log: each kind of failure is logged within a bound, and
// the rest is counted.
func TestFailureLogIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := newFailureLog(slog.New(slog.NewTextHandler(&text, nil)))
		request := func(status int, cause error) {
			r := httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient?name=secret", nil)
			r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), httptest.NewRecorder(), nil)
			for range 3 { // handlers that see the same error
				log.request(r, caddyhttp.Error(status, cause))
			}
		}
		for range 100 {
			request(http.StatusBadGateway, errors.New("refused"))
		}
		request(http.StatusServiceUnavailable, errors.New("rare"))
		request(http.StatusNotFound, errors.New("no failure"))
		request(http.StatusServiceUnavailable, fmt.Errorf("verification: %w", store.ErrUnavailable)) // its breaker logs
		got := text.String()
		if strings.Count(got, "\n") != maxFailures+1 || strings.Count(got, "refused") != maxFailures || strings.Count(got, "rare") != 1 || strings.Contains(got, "secret") {
			t.Error(got)
		}
		text.Reset()
		time.Sleep(failureWindowTime + 1)
		synctest.Wait()
		if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "left_out=90") {
			t.Error(got)
		}
		text.Reset()
		request(http.StatusBadGateway, errors.New("again"))
		if !strings.Contains(text.String(), "again") {
			t.Error("not logged in the next minute")
		}
		time.Sleep(failureWindowTime + 1)
		for n := range 2 * maxFailureKinds {
			log.write(string(rune('a'+n)), "x")
		}
		if len(log.windows) > maxFailureKinds {
			t.Errorf("%d kinds", len(log.windows))
		}
		time.Sleep(failureWindowTime + 1)
	})
}

// What a core logs at error level is within the same bound; other levels are not.
func TestLimitFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := limitFailures(slog.New(slog.NewTextHandler(&text, nil))).With("with", "attribute").WithGroup("group")
		for range 3 * maxFailures {
			log.Error("store down", "path", "/oauth2/token")
			log.Info("refused")
			log.Error("not stored", "error", fmt.Errorf("x: %w", store.ErrUnavailable)) // its breaker logs
		}
		got := text.String()
		if strings.Count(got, "store down") != maxFailures || strings.Count(got, "with=attribute") != 4*maxFailures || strings.Count(got, "group.path") != maxFailures || strings.Contains(got, "not stored") {
			t.Error(got)
		}
		text.Reset()
		time.Sleep(failureWindowTime + 1)
		synctest.Wait()
		if got := text.String(); !strings.Contains(got, "left_out=20") {
			t.Error(got)
		}
	})
}

package fhirapp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
)

// The audit trail can be routed by its logger name, and has the documented fields.
func TestAuditLog(t *testing.T) {
	t.Parallel()
	g, all, audit := loggingGateway(t)
	r := httptest.NewRequest(http.MethodPost, "/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	r.RemoteAddr = "192.0.2.1:1234"
	r.SetBasicAuth("demo-service", "demo-service-secret")
	g.Send(r)
	lines := logLines(t, audit)
	if len(lines) != 1 {
		t.Fatalf("not one line: %v", lines)
	}
	entry := lines[0]
	delete(entry, "ts")
	want := map[string]any{
		"level": "info", "logger": "fhir.audit", "msg": "token", "kind": "token", "outcome": "success", "client_id": "demo-service",
		"scope": "system/*.rs", "grant": "client_credentials", "address": "203.0.113.7",
	}
	for name, value := range want {
		if entry[name] != value {
			t.Errorf("%s is %v, want %v", name, entry[name], value)
		}
	}
	if len(entry) != len(want) {
		t.Errorf("%v", entry)
	}
	for _, line := range logLines(t, all) { // Caddy takes it out there
		if line["logger"] == "fhir.audit" {
			t.Errorf("it is in the default log, too: %v", line)
		}
	}
}

// Events that anybody can cause are logged within bounds. How many were left out is
// logged when the configuration stops, at the latest.
func TestAuditLogUnderFlood(t *testing.T) {
	t.Parallel()
	g, _, audit := loggingGateway(t)
	for range 100 {
		g.Get("/oauth2/authorize?client_id=nobody", "")
	}
	app, err := g.Context.App("fhir")
	if err != nil {
		t.Fatal(err)
	}
	if err := app.(*App).Stop(); err != nil {
		t.Fatal(err)
	}
	lines := logLines(t, audit)
	last := lines[len(lines)-1]
	if len(lines) != 61 || last["outcome"] != "left_out" || last["left_out"] != 40.0 || last["kind"] != "authorization" || last["address"] != "192.0.2.1" {
		t.Errorf("%d lines, the last %v", len(lines), last)
	}
}

// Requests are counted by Caddy's client address, which honours trusted_proxies, and
// never by what the request says of itself.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		vars map[string]any
		want string
	}{
		{"as Caddy has it", map[string]any{caddyhttp.ClientIPVarKey: "198.51.100.7"}, "198.51.100.7"},
		{"without Caddy", map[string]any{}, "192.0.2.1"},
		{"of another type", map[string]any{caddyhttp.ClientIPVarKey: 7}, "192.0.2.1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1:1234
			for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP"} {
				r.Header.Set(name, "203.0.113.9")
			}
			r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, tt.vars))
			if got := requester.Address(r); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

package fhirapp

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
)

// What a handler behind refuses was not done, and ends nothing; what failed may have
// been.
func TestRefusedWriteEndsNothing(t *testing.T) {
	server := newScripted("good")
	g := frontGateway(t, "ttl 1h", server)
	h := gatewaytest.HandlerOf[*expand.Expand](t, frontGateway(t, "ttl 2h", server).Context)
	for status, kept := range map[int]bool{http.StatusForbidden: true, http.StatusBadGateway: false} {
		gatewaytest.Read(t, g.askFor(foreign, ""))
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/ValueSet/1", nil)
		refuses := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(status, nil) })
		w := httptest.NewRecorder()
		if err := h.ServeHTTP(w, caddyhttp.PrepareRequest(r, caddy.NewReplacer(), w, new(caddyhttp.Server)), refuses); err != nil || w.Code != status {
			t.Errorf("answered %d, %v", w.Code, err)
		}
		asked := server.asked.Load()
		if gatewaytest.Read(t, g.askFor(foreign, "")); (server.asked.Load() == asked) != kept {
			t.Errorf("%d: kept: %t, want %t", status, !kept, kept)
		}
	}
}

// The admin API ends answers: all, those of a value set, those with concepts of a
// code system.
func TestPurgeEndsAnswers(t *testing.T) {
	const a, b = "http://x.example/purge-a", "http://x.example/purge-b"
	file := gatewaytest.WriteFile(t, "vs.json", `{"resourceType":"Bundle","type":"collection","entry":[{"resource":`+listing("a", a, "1")+`},{"resource":`+
		strings.ReplaceAll(listing("b", b, "2"), "http://x.example/cs", "http://x.example/cs2")+`}]}`)
	g := frontGateway(t, "core off\ndefinitions "+file, http.NotFoundHandler())
	for query, ended := range map[string][]bool{
		"": {true, true}, "?url=" + a: {true, false}, "?url=" + b + "|1": {false, true}, "?system=http://x.example/cs2": {false, true}, "?system=http://x.example/other": {false, false},
	} {
		g.wantCodes(t, a, "1")
		g.wantCodes(t, b, "2")
		if _, err := admin(t, g.Context, http.MethodDelete, "/fhir/expansions"+query); err != nil {
			t.Fatal(err)
		}
		for i, url := range []string{a, b} {
			if _, status := g.codesOf(t, url); strings.Contains(status, "hit") == ended[i] {
				t.Errorf("%s: %s: %s", query, url, status)
			}
		}
	}
}

package fhirapp

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// Definitions are fetched through the handlers behind, in nobody's name.
func TestDefinitionsOfBackend(t *testing.T) {
	var searches, leaks atomic.Int64
	g := frontGateway(t, "definitions backend", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			leaks.Add(1)
		}
		if r.Host != "localhost:8443" || r.URL.Path != "/fhir/R4/ValueSet" {
			t.Errorf("%s %s%s", r.Method, r.Host, r.URL)
		}
		searches.Add(1)
		w.Header().Set("Content-Type", "application/fhir+json")
		_, _ = io.WriteString(w, `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":`+listing("1", foreign, "1")+`}]}`)
	}))
	for range 3 {
		checkCodes(t, gatewaytest.Read(t, g.askFor(foreign, "Bearer user")), "1")
	}
	if searches.Load() != 1 || leaks.Load() != 0 {
		t.Errorf("%d searches, %d with a user's credentials", searches.Load(), leaks.Load())
	}
}

package caddymodule

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// What was asked for before a write is not kept after it, whoever is asked: it may be
// from before.
func TestWriteWhileAsking(t *testing.T) {
	for _, who := range []string{"next handler", "upstream", "definitions"} {
		t.Run(who, func(t *testing.T) {
			var version atomic.Int64
			version.Store(1)
			arrived, gate := make(chan struct{}, 10), make(chan struct{})
			server := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/fhir+json")
				if r.Method == http.MethodPut {
					version.Add(1)
					return
				}
				body := expansionOf(foreign, fmt.Sprint("v", version.Load()))
				if who == "definitions" {
					body = `{"resourceType":"Bundle","type":"searchset","entry":[{"resource":` + listing("1", foreign, fmt.Sprint("v", version.Load())) + `}]}`
				}
				arrived <- struct{}{}
				<-gate
				_, _ = io.WriteString(w, body)
			})
			settings, backend := "ttl 1h", http.Handler(server)
			switch who {
			case "upstream":
				settings, backend = "upstream "+terminologyServer(t, server), server
			case "definitions":
				settings = "definitions backend"
			}
			g := frontGateway(t, settings, backend)
			var asking sync.WaitGroup
			asking.Go(func() { g.Server.ServeHTTP(httptest.NewRecorder(), askingFor(foreign)) })
			<-arrived
			g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "v2"))
			close(gate)
			asking.Wait()
			for range 3 {
				checkCodes(t, gatewaytest.Read(t, g.askFor(foreign, "")), "v2") // after the write
			}
		})
	}
}

// What a handler behind refuses was not done, and ends nothing; what failed may have
// been.
func TestRefusedWriteEndsNothing(t *testing.T) {
	server := newScripted("good")
	g := frontGateway(t, "ttl 1h", server)
	h := provisioned(t)
	for status, kept := range map[int]bool{http.StatusForbidden: true, http.StatusBadGateway: false} {
		gatewaytest.Read(t, g.askFor(foreign, ""))
		r := httptest.NewRequest(http.MethodDelete, "/fhir/R4/ValueSet/1", nil)
		refuses := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return caddyhttp.Error(status, nil) })
		if err := h.front.ServeHTTP(httptest.NewRecorder(), r, refuses); err == nil {
			t.Error("the error is gone")
		}
		asked := server.asked.Load()
		if gatewaytest.Read(t, g.askFor(foreign, "")); (server.asked.Load() == asked) != kept {
			t.Errorf("%d: kept: %t, want %t", status, !kept, kept)
		}
	}
}

// A value set that the backend stores is expanded here, and a write that passes
// through is seen at once, through imports as well; what does not depend on it stays.
func TestBackendDefinitions(t *testing.T) {
	s := newDefinitionStore()
	g := frontGateway(t, "definitions backend", s)
	const a, b, c, other = "http://x.example/a", "http://x.example/b", "http://x.example/c", "http://x.example/other"
	g.write(t, http.MethodPut, "ValueSet/a", listing("a", a, "1", b))
	g.write(t, http.MethodPut, "ValueSet/b", listing("b", b, "2", c))
	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "3"))
	g.write(t, http.MethodPut, "ValueSet/other", listing("other", other, "9"))
	g.wantCodes(t, a, "1 2 3")
	g.wantCodes(t, other, "9")
	reads := s.reads

	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "4"))
	g.wantCodes(t, a, "1 2 4")
	if _, status := g.codesOf(t, other); !strings.Contains(status, "hit") {
		t.Errorf("what does not depend on it: %s", status)
	}
	if s.reads != reads+1 {
		t.Errorf("%d definitions fetched after a write of one", s.reads-reads)
	}

	g.write(t, http.MethodPut, "ValueSet/b", listing("b", "http://x.example/moved", "5"))
	if response := g.Get(expandPath(a), ""); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that has another url now: %d", response.StatusCode)
	}
	g.write(t, http.MethodPut, "ValueSet/b2", listing("b2", b, "6"))
	g.wantCodes(t, a, "1 6")
	g.write(t, http.MethodDelete, "ValueSet/c", "")
	g.write(t, http.MethodPut, "ValueSet/b2", listing("b2", b, "6", c))
	if response := g.Get(expandPath(a), ""); response.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("with an import that was deleted: %d", response.StatusCode)
	}
	g.write(t, http.MethodPut, "ValueSet/c", listing("c", c, "7"))
	g.wantCodes(t, a, "1 6 7")
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

package fhirapp

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// However a server fails, the client gets the stale response if this is permitted, and otherwise an error with the cause. The
// failure is not cached.
func TestServerFails(t *testing.T) {
	t.Parallel()
	statuses := map[string]int{
		"killed": 502, "hanging": 504, "garbage": 502, "a page": 502, "another resource": 502, "500": 502, "half a body": 502,
		"gzip bomb": 502,
	}
	var failed []*failedServer
	t.Run("failing", func(all *testing.T) {
		for _, who := range []string{"next handler", "upstream"} {
			for mode, status := range statuses {
				for _, stale := range []bool{true, false} {
					f := newFailedServer(t, who, mode, stale)
					failed = append(failed, f)
					all.Run(f.name, func(t *testing.T) {
						t.Parallel() // requests to hung servers take the full timeout
						f.fail(t, mode, stale, status)
					})
				}
			}
		}
	})
	for _, f := range failed { // requests resume at least one second after each failure
		t.Run("good again "+f.name, f.recover)
	}
}

// failedServer is a failing server and the gateway in front of it.
type failedServer struct {
	name    string
	server  *scriptedServer
	gateway *gateway
}

func newFailedServer(t *testing.T, who, mode string, stale bool) *failedServer {
	t.Helper()
	f := &failedServer{name: fmt.Sprintf("%s %s stale %t", who, mode, stale), server: newScriptedServer("good at once only")}
	settings, backend := "timeout 1m", http.Handler(f.server)
	if mode == "hanging" { // long enough for the first responses even on a busy machine
		settings = "timeout 1s"
	}
	if who == "upstream" {
		settings += "\nupstream " + terminologyServer(t, f.server)
		backend = http.NotFoundHandler()
	}
	if stale {
		settings += "\nstale 24h"
	}
	f.gateway = frontGateway(t, settings, backend)
	return f
}

func (f *failedServer) fail(t *testing.T, mode string, stale bool, status int) {
	g := &gateway{Gateway: f.gateway.Gateway, t: t}
	first := gatewaytest.ReadBody(t, g.expandAs(foreign, ""))
	checkCodes(t, first, "theirs")
	f.server.mode.Store(mode)
	another := make(chan *http.Response, 1)
	go func() { another <- (&gateway{Gateway: g.NewBrowser()}).expandAs(foreign+"2", "") }() // concurrent: a request to a hung server takes the full timeout
	response := g.expandAs(foreign, "")
	cacheStatus := response.Header.Get("Cache-Status")
	if stale {
		if got := gatewaytest.ReadBody(t, response); response.StatusCode != http.StatusOK || got != first || !strings.Contains(cacheStatus, "stale-if-error") || response.Header.Get("Age") == "" {
			t.Errorf("%d %s: %s", response.StatusCode, cacheStatus, got)
		}
	} else if g.DecodeOutcome(response); response.StatusCode != status {
		t.Errorf("%d, want %d", response.StatusCode, status)
	}
	response = <-another
	if g.DecodeOutcome(response); response.StatusCode != status {
		t.Errorf("another: %d, want %d", response.StatusCode, status)
	}
	f.server.mode.Store("good")
}

func (f *failedServer) recover(t *testing.T) {
	g := &gateway{Gateway: f.gateway.Gateway, t: t}
	for _, url := range []string{foreign, foreign + "2"} {
		checkCodes(t, g.recovered(url), "theirs")
	}
}

// recovered returns the first successful response from a server that has recovered. The gateway does not contact a server for
// one second after a failure.
func (g *gateway) recovered(url string) string {
	g.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for range 100 {
		response := g.expandAs(url, "")
		text := gatewaytest.ReadBody(g.t, response)
		if response.StatusCode == http.StatusOK && !strings.Contains(response.Header.Get("Cache-Status"), "stale") {
			return text
		}
		<-again.C
	}
	g.t.Fatalf("%s: no good answer", url)
	return ""
}

// Informational responses and trailers are dropped and do not affect the response.
func TestHintsAndTrailers(t *testing.T) {
	for _, who := range []string{"next handler", "upstream"} {
		server := newScriptedServer("hints and trailers")
		settings, backend := "ttl 1h", http.Handler(server)
		if who == "upstream" {
			settings, backend = "upstream "+terminologyServer(t, server), http.NotFoundHandler()
		}
		g := frontGateway(t, settings, backend)
		for range 3 {
			response := g.expandAs(foreign, "")
			checkCodes(t, gatewaytest.ReadBody(t, response), "theirs")
			if response.StatusCode != http.StatusOK || response.Header.Get("Link")+response.Header.Get("X-Checksum") != "" {
				t.Errorf("%s: %d %v", who, response.StatusCode, response.Header)
			}
		}
		if n := server.requests.Load(); n != 1 {
			t.Errorf("%s: %d requests", who, n)
		}
	}
}

// The configured timeout applies to upstreams and next handlers, even if the cache is bypassed. A client that disconnects is
// not counted as a failure.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	server := newScriptedServer("hanging")
	g := frontGateway(t, "timeout 100ms\nupstream "+terminologyServer(t, newScriptedServer("good")), server)
	if response := g.Get("/fhir/R4/ValueSet/1/$expand", "", "Cache-Control", "no-store"); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("past the cache: %d", response.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if response := frontGateway(t, "timeout 100ms", server).Send(httptest.NewRequestWithContext(ctx, http.MethodGet, expandPath(foreign), nil)); response.StatusCode != 499 {
		t.Errorf("a disconnected client: %d", response.StatusCode)
	}
}

// scriptedServer is a FHIR server that responds to $expand according to its mode and counts the requests.
type scriptedServer struct {
	mode     atomic.Value // value of type string
	requests atomic.Int64
	gate     chan struct{} // delays responses until it is closed; nil means no delay
}

func newScriptedServer(mode string) *scriptedServer {
	s := new(scriptedServer)
	s.mode.Store(mode)
	return s
}

// expansionOf returns the JSON of an expansion with one code.
func expansionOf(url, code string) string {
	return fmt.Sprintf(`{"resourceType":"ValueSet","url":%q,"status":"active","expansion":{"timestamp":"2026-01-01","total":1,"contains":[{"system":"http://x.example/cs","code":%q}]}}`, url, code)
}

func (s *scriptedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if s.gate != nil {
		<-s.gate
	}
	_, _ = io.Copy(io.Discard, r.Body)
	full := expansionOf(r.URL.Query().Get("url"), "theirs")
	header := w.Header()
	header.Set("Content-Type", "application/fhir+json")
	switch mode := s.mode.Load(); mode {
	case "good":
		_, _ = io.WriteString(w, full)
	case "good at once only":
		header.Set("Cache-Control", "max-age=0")
		_, _ = io.WriteString(w, full)
	case "killed":
		panic(http.ErrAbortHandler)
	case "hanging":
		<-r.Context().Done()
	case "garbage":
		_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{`)
	case "a page":
		header.Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Welcome</html>")
	case "another resource":
		_, _ = io.WriteString(w, `{"resourceType":"Bundle"}`)
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "gzip bomb":
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipBomb())
	case "hints and trailers":
		header.Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		header.Del("Link")
		header.Set("Trailer", "X-Checksum")
		_, _ = io.WriteString(w, full)
		header.Set("X-Checksum", "1")
	case "half a body":
		header.Set("Content-Length", fmt.Sprint(len(full)))
		_, _ = io.WriteString(w, full[:len(full)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		panic(fmt.Sprint("no such mode: ", mode))
	}
}

// gzipBomb is an expansion of 32 MiB, twice the maximum response size.
var gzipBomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, `{"resourceType":"ValueSet","expansion":{},"x":"`)
	for range 32 {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}
	_, _ = io.WriteString(w, `"}`)
	_ = w.Close()
	return b.Bytes()
})

// frontGateway starts a gateway with fhir_expand in front of a backend, without a guard.
func frontGateway(t testing.TB, settings string, backend http.Handler) *gateway {
	t.Helper()
	return newGateway(t, frontCaddyfile(settings, gatewaytest.Backend(t, backend)))
}

func frontCaddyfile(settings, backend string) string {
	return `{
	auto_https disable_redirects
	skip_install_trust
}

https://localhost:8443 {
	fhir_expand {
		` + strings.ReplaceAll(settings, "\n", "\n\t\t") + `
	}
	reverse_proxy ` + backend + `
	handle_errors {
		fhir_outcome
	}
}
`
}

func expandPath(url string) string { return "/fhir/R4/ValueSet/$expand?url=" + url }

// expandAs expands a value set with the given credentials.
func (g *gateway) expandAs(url, credentials string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, expandPath(url), nil)
	if credentials != "" {
		r.Header.Set("Authorization", credentials)
	}
	return g.Send(r)
}

const foreign = "http://x.example/vs"

// terminologyServer starts a terminology server and returns its address for the option upstream.
func terminologyServer(t testing.TB, handler http.Handler) string {
	t.Helper()
	return "http://" + gatewaytest.Backend(t, handler) + "/r4"
}

package fhirapp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

// However a server fails, the client is given the answer from before where that is
// allowed, or else is told what failed; and what failed is not kept.
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
						t.Parallel() // those that hang wait for their time-outs
						f.fail(t, mode, stale, status)
					})
				}
			}
		}
	})
	for _, f := range failed { // all have failed for a second by now
		t.Run("good again "+f.name, f.recover)
	}
}

// failedServer is a server that fails, before a gateway.
type failedServer struct {
	name    string
	server  *scripted
	gateway *gateway
}

func newFailedServer(t *testing.T, who, mode string, stale bool) *failedServer {
	t.Helper()
	f := &failedServer{name: fmt.Sprintf("%s %s stale %t", who, mode, stale), server: newScripted("good at once only")}
	settings, backend := "timeout 1m", http.Handler(f.server)
	if mode == "hanging" { // long enough for the good answers on a machine that is busy
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
	first := gatewaytest.Read(t, g.askFor(foreign, ""))
	checkCodes(t, first, "theirs")
	f.server.mode.Store(mode)
	another := make(chan *http.Response, 1)
	go func() { another <- (&gateway{Gateway: g.NewBrowser()}).askFor(foreign+"2", "") }() // meanwhile, for those that hang
	response := g.askFor(foreign, "")
	cacheStatus := response.Header.Get("Cache-Status")
	if stale {
		if got := gatewaytest.Read(t, response); response.StatusCode != http.StatusOK || got != first || !strings.Contains(cacheStatus, "stale-if-error") || response.Header.Get("Age") == "" {
			t.Errorf("%d %s: %s", response.StatusCode, cacheStatus, got)
		}
	} else if g.Outcome(response); response.StatusCode != status {
		t.Errorf("%d, want %d", response.StatusCode, status)
	}
	response = <-another
	if g.Outcome(response); response.StatusCode != status {
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

// recovered returns the first good answer of a server that is good again, which is not asked for a second after a failure.
func (g *gateway) recovered(url string) string {
	g.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for range 100 {
		response := g.askFor(url, "")
		text := gatewaytest.Read(g.t, response)
		if response.StatusCode == http.StatusOK && !strings.Contains(response.Header.Get("Cache-Status"), "stale") {
			return text
		}
		<-again.C
	}
	g.t.Fatalf("%s: no good answer", url)
	return ""
}

// What comes before an answer and after it is no part of it, and no harm.
func TestHintsAndTrailers(t *testing.T) {
	for _, who := range []string{"next handler", "upstream"} {
		server := newScripted("hints and trailers")
		settings, backend := "ttl 1h", http.Handler(server)
		if who == "upstream" {
			settings, backend = "upstream "+terminologyServer(t, server), http.NotFoundHandler()
		}
		g := frontGateway(t, settings, backend)
		for range 3 {
			response := g.askFor(foreign, "")
			checkCodes(t, gatewaytest.Read(t, response), "theirs")
			if response.StatusCode != http.StatusOK || response.Header.Get("Link")+response.Header.Get("X-Checksum") != "" {
				t.Errorf("%s: %d %v", who, response.StatusCode, response.Header)
			}
		}
		if n := server.asked.Load(); n != 1 {
			t.Errorf("%s: asked %d times", who, n)
		}
	}
}

// Whoever is asked has the time that is set for it, past the cache too; a client that
// does not wait for the answer is no failure.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	server := newScripted("hanging")
	g := frontGateway(t, "timeout 100ms\nupstream "+terminologyServer(t, newScripted("good")), server)
	if response := g.Get("/fhir/R4/ValueSet/1/$expand", "", "Cache-Control", "no-store"); response.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("past the cache: %d", response.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if response := frontGateway(t, "timeout 100ms", server).Send(httptest.NewRequestWithContext(ctx, http.MethodGet, expandPath(foreign), nil)); response.StatusCode != 499 {
		t.Errorf("a client that is gone: %d", response.StatusCode)
	}
}

package fhirapp

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/expand"
)

// A reload keeps answers and definitions, unless something of the settings has
// changed, or of the handlers around.
func TestReloadKeepsAnswers(t *testing.T) {
	server := newScripted("good")
	address := gatewaytest.Backend(t, server)
	first := newGateway(t, frontCaddyfile("ttl 1h", address))
	gatewaytest.Read(t, first.askFor(foreign, ""))
	for name, tt := range map[string]struct {
		caddyfile string
		kept      bool
	}{
		"nothing changed": {frontCaddyfile("ttl 1h", address), true},
		"another ttl":     {frontCaddyfile("ttl 2h", address), false},
		"another backend": {frontCaddyfile("ttl 1h", address+" "+address), false},
	} {
		asked := server.asked.Load()
		second := newGateway(t, tt.caddyfile)
		checkCodes(t, gatewaytest.Read(t, second.askFor(foreign, "")), "theirs")
		if kept := server.asked.Load() == asked; kept != tt.kept {
			t.Errorf("%s: kept %t, want %t", name, kept, tt.kept)
		}
	}
}

// A changed file is noticed; a broken one is reported, and what was there stays.
func TestChangedFileIsNoticed(t *testing.T) {
	t.Parallel()
	const url = "http://x.example/changing"
	file := gatewaytest.WriteFile(t, "vs.json", listing("v", url, "1"))
	g := frontGateway(t, "core off\ndefinitions "+file, http.NotFoundHandler())
	g.wantCodes(t, url, "1")
	g.until(t, file, listing("v", url, "1 2"), func() bool { codes, _ := g.codesOf(t, url); return len(codes) == 2 })
	g.wantCodes(t, url, "1 2")
	failed := func() bool {
		return slices.ContainsFunc(expand.LoadedDefinitions(), func(s expand.DefinitionsStatus) bool { return s.Error != "" && strings.Contains(s.Error, file) })
	}
	g.until(t, file, `{"resourceType":"ValueSet","url":`, failed)
	if g.series()["caddy_fhir_definitions_load_failed"] < 1 {
		t.Error("the metrics do not tell")
	}
	g.wantCodes(t, url, "1 2")
	g.until(t, file, listing("v", url, "3"), func() bool { return !failed() })
	g.wantCodes(t, url, "3")
}

// until waits for what comes of a changed file. It looks at the files more often than the watch does by itself.
func (g *gateway) until(t *testing.T, file, content string, there func() bool) {
	t.Helper()
	gatewaytest.Put(t, file, content)
	expand.RefreshDefinitions(t.Context())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !there() {
		select {
		case <-ctx.Done():
			t.Fatal("not noticed: " + content)
		case <-ticker.C:
		}
	}
}

package caddymodule

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
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

// persisted is fhir_expand with persist, before a backend.
type persisted struct {
	t         *testing.T
	folder    string
	caddyfile string
}

func newPersisted(t *testing.T, settings string, backend http.Handler) *persisted {
	t.Helper()
	folder := t.TempDir()
	return &persisted{t, folder, frontCaddyfile("persist "+folder+"\n"+settings, gatewaytest.Backend(t, backend))}
}

// run starts it, and stops it as Cleanup does. One that is killed saves nothing.
func (p *persisted) run(do func(*gateway), killed bool) {
	p.t.Helper()
	g := newGateway(p.t, p.caddyfile)
	do(g)
	saved := p.files()
	if err := handlerOf[*expand.Expand](p.t, g.Context).Cleanup(); err != nil {
		p.t.Error(err)
	}
	for _, file := range p.files() {
		if killed && !slices.ContainsFunc(saved, func(f os.DirEntry) bool { return f.Name() == file.Name() }) {
			if err := os.Remove(filepath.Join(p.folder, file.Name())); err != nil {
				p.t.Error(err)
			}
		}
	}
}

func (p *persisted) files() []os.DirEntry {
	p.t.Helper()
	files, err := os.ReadDir(p.folder)
	if err != nil {
		p.t.Fatal(err)
	}
	return files
}

// With persist, answers are there after a restart; a file that is broken costs
// nothing but them, and a configuration that is only validated makes none.
func TestPersist(t *testing.T) {
	server := newScripted("good")
	p := newPersisted(t, "ttl 1h", server)
	run := func() (asked int64) {
		before := server.asked.Load()
		p.run(func(g *gateway) {
			checkCodes(t, gatewaytest.Read(t, g.askFor(foreign, "")), "theirs")
			for range 2 { // a local answer
				gatewaytest.Read(t, g.Get(expandPath(genderSet), ""))
			}
		}, false)
		return server.asked.Load() - before
	}
	p.run(func(*gateway) {}, false)
	if files := p.files(); len(files) != 0 {
		t.Errorf("without a request: %v", files)
	}
	if n := run(); n != 1 {
		t.Fatalf("asked %d times at first", n)
	}
	p.run(func(*gateway) {}, false)
	if n := run(); n != 0 {
		t.Errorf("asked %d times after a restart", n)
	}
	files := p.files()
	if len(files) != 1 {
		t.Fatal(files)
	}
	name := p.folder + "/" + files[0].Name()
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	gatewaytest.Put(t, name, "broken")
	if n := run(); n != 1 {
		t.Errorf("asked %d times with a broken file", n)
	}
}

// What a write has ended does not come back: not with a restart after the process was
// killed, nor with settings that were in use before.
func TestPersistBringsBackNothingEnded(t *testing.T) {
	server := newScripted("good")
	p := newPersisted(t, "ttl 1h", server)
	another := *p
	another.caddyfile = strings.Replace(p.caddyfile, "ttl 1h", "ttl 2h", 1)
	ask := func(g *gateway) { gatewaytest.Read(t, g.askFor(foreign, "")) }
	write := func(g *gateway) {
		g.write(t, http.MethodPut, "ValueSet/1", listing("1", foreign, "new"))
	}
	p.run(ask, false)
	p.run(write, true)
	asked := server.asked.Load()
	if p.run(ask, false); server.asked.Load() == asked {
		t.Error("it came back after the process was killed")
	}
	another.run(write, false)
	asked = server.asked.Load()
	if p.run(ask, false); server.asked.Load() == asked {
		t.Error("it came back with the settings")
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

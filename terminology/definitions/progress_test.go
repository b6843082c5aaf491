package definitions

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// slowReader is a source that gives a megabyte at a time, which takes a second each.
type slowReader struct{ now time.Time }

func (s *slowReader) Read(b []byte) (int, error) {
	s.now = s.now.Add(time.Second)
	return len(b), nil
}

func TestProgress(t *testing.T) {
	src := &slowReader{now: fixture.Time}
	var log, terminal bytes.Buffer
	o := Options{Now: func() time.Time { return src.now }, Logger: slog.New(slog.NewTextHandler(&log, nil)), Terminal: &terminal}
	p := newProgress(t.Context(), src, "big.json", 20<<20, &o)
	buffer := make([]byte, 1<<20)
	for range 20 {
		if _, err := p.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	p.end()
	fixture.WantText(t, log.String(), "loading definitions", "file=big.json", "percent=25", "percent=100")
	if n := strings.Count(log.String(), "\n"); n != 4 {
		t.Errorf("%d lines in 20 s, want one every five seconds:\n%s", n, log.String())
	}
	fixture.WantText(t, terminal.String(), "\r[====================                    ]  50 % big.json", " 100 % big.json\r\x1b[K")
}

func TestProgressOfSmallFiles(t *testing.T) {
	var log, terminal bytes.Buffer
	name := t.TempDir() + "/small.json"
	fixture.WriteFile(t, name, []byte(fixture.Animals))
	logger := slog.New(slog.NewTextHandler(&log, nil)) // at level info
	if _, err := Load(t.Context(), Options{Definitions: []string{name}, Logger: logger, Terminal: &terminal}); err != nil {
		t.Fatal(err)
	}
	if log.Len()+terminal.Len() > 0 {
		t.Errorf("got log %q, bar %q", log.String(), terminal.String())
	}
}

func TestTerminal(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	if w := Terminal(f); w != nil {
		t.Errorf("a file is a terminal: %v", w)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if w := Terminal(f); w != nil {
		t.Errorf("a closed file is a terminal: %v", w)
	}
}

package definitions

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// listFormat is a release with the file codes.list: a version followed by codes, one per line.
var listFormat = ReleaseFormat{
	Name:     "code list",
	IsMarker: func(file string) bool { return strings.HasSuffix(file, "codes.list") },
	Load: func(_ context.Context, r *Release) (*ReleaseContent, error) {
		name := r.Files[slices.IndexFunc(r.Files, func(file string) bool { return strings.HasSuffix(file, "codes.list") })]
		if err := r.Plan([]string{name}); err != nil {
			return nil, err
		}
		f, err := r.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		lines := strings.Fields(string(text))
		var b table.Builder
		b.Reset()
		for _, code := range lines[1:] {
			b.AddConcept([]byte(code), 0, 0, 0)
		}
		concepts, err := b.Build("en", true)
		return &ReleaseContent{
			Sources: []codesystem.Source{{URL: "http://x/list", Version: lines[0], System: concepts, IsDefaultEdition: strings.Contains(lines[0], "/main/")}},
			ValueSet: func(url string) (vs ImpliedValueSet, ok bool) {
				code, ok := strings.CutPrefix(url, "http://x/list/vs/")
				vs.Title, vs.Include = "Only "+code, ConceptSet{System: "http://x/list", Version: lines[0], Filters: []Filter{{Property: "code", Op: "=", Value: code}}}
				return vs, ok
			},
		}, err
	},
}

// withListFormat registers listFormat during a test.
func withListFormat(t *testing.T) {
	t.Helper()
	old := releaseFormats
	RegisterReleaseFormat(listFormat)
	t.Cleanup(func() { releaseFormats = old })
}

func archiveOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err == nil {
			_, err = io.WriteString(f, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

// TestReleases checks that archives and folders are loaded, and which version a reference without a version has.
func TestReleases(t *testing.T) {
	withListFormat(t)
	folder := t.TempDir()
	fixture.WriteFile(t, filepath.Join(folder, "old.zip"), archiveOf(t, "r/codes.list", "http://x/main/version/2025 a b"))
	fixture.WriteFile(t, filepath.Join(folder, "other.zip"), archiveOf(t, "readme.txt", "nothing"))
	fixture.WriteFile(t, filepath.Join(folder, "new.zip"), archiveOf(t, "codes.list", "http://x/main/version/2026 a b c"))
	unpacked := filepath.Join(folder, "national")
	if err := os.MkdirAll(filepath.Join(unpacked, "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	fixture.WriteFile(t, filepath.Join(unpacked, "deep", "codes.list"), []byte("http://x/national/version/2027 n"))
	l, err := Load(t.Context(), Options{Definitions: []string{filepath.Join(folder, "*.zip"), unpacked}})
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]int{"": 3, "http://x/main": 3, "http://x/main/version/2025": 2, "http://x/national": 1} {
		if got := l.Systems.CodeSystems[l.Systems.CodeSystem("http://x/list", version)].Concepts.Len(); got != want {
			t.Errorf("version %q: %d concepts, want %d", version, got, want)
		}
	}
	vs, ok := l.ResolveValueSet("http://x/list/vs/n", "")
	if !ok || vs.Title != "Only n" || vs.Include[0].Version != "http://x/national/version/2027" {
		t.Errorf("implied value set: got %+v", vs)
	}
	if got := l.Counts(); got.CodeSystems != 3 || got.Concepts != 6 {
		t.Errorf("counts: %v", got)
	}
}

// TestEditionOrder checks that, without a default edition, the one loaded last has precedence, in its latest version.
func TestEditionOrder(t *testing.T) {
	withListFormat(t)
	folder := t.TempDir()
	for i, version := range []string{"http://x/b/version/2027", "http://x/a/version/2026", "http://x/a/version/2025"} {
		fixture.WriteFile(t, filepath.Join(folder, string(rune('1'+i))+".zip"), archiveOf(t, "codes.list", version+" a"))
	}
	l, err := Load(t.Context(), Options{Definitions: []string{folder}})
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Systems.CodeSystems[l.Systems.CodeSystem("http://x/list", "")].Version; got != "http://x/a/version/2026" {
		t.Errorf("got %s", got)
	}
}

// TestReleaseProgress checks that the progress relative to the planned files is logged.
func TestReleaseProgress(t *testing.T) {
	withListFormat(t)
	file := filepath.Join(t.TempDir(), "x.zip")
	fixture.WriteFile(t, file, archiveOf(t, "codes.list", "1 "+strings.Repeat("a", 3<<20), "other.txt", strings.Repeat("a", 3<<20)))
	var log bytes.Buffer
	now := fixture.Time
	clock := func() time.Time { now = now.Add(6 * time.Second); return now }
	if _, err := Load(t.Context(), Options{Definitions: []string{file}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Now: clock}); err != nil {
		t.Fatal(err)
	}
	fixture.WantContains(t, log.String(), "loading definitions", "percent=33", "of=3145730")
}

// TestReleaseCanceled checks that the end of the context stops loading.
func TestReleaseCanceled(t *testing.T) {
	withListFormat(t)
	file := filepath.Join(t.TempDir(), "x.zip")
	fixture.WriteFile(t, file, archiveOf(t, "codes.list", "1 a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Load(ctx, Options{Definitions: []string{file}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestReleaseErrors(t *testing.T) {
	withListFormat(t)
	for name, test := range map[string]struct {
		content []byte
		max     int64
		want    string
	}{
		"truncated archive":  {archiveOf(t, "codes.list", "1 a")[:60], 0, "zip: "},
		"no archive":         {[]byte("text"), 0, "zip: "},
		"unknown archive":    {archiveOf(t, "x.txt", "1 a"), 0, "no release in a known format"},
		"too large":          {archiveOf(t, "codes.list", "1 "+strings.Repeat("a", 100)), 50, "codes.list: the file"},
		"decompression bomb": {archiveOf(t, "codes.list", "1 "+strings.Repeat("a", 17<<20)), 0, "like a decompression bomb"},
		"duplicate file":     {archiveOf(t, "codes.list", "1 a", "codes.list", "1 b"), 0, "codes.list twice"},
	} {
		file := filepath.Join(t.TempDir(), "x.zip")
		fixture.WriteFile(t, file, test.content)
		if _, err := Load(t.Context(), Options{Definitions: []string{file}, MaxPackage: test.max}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

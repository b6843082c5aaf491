package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// testWatch watches a folder with a fake clock.
type testWatch struct {
	*terminology.Watch
	folder string
	log    syncedBuffer
	tick   time.Duration
}

// syncedBuffer is a log buffer that is safe for concurrent use.
type syncedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// take returns what was logged since the previous call.
func (b *syncedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.Reset()
	return b.String()
}

// runWatch runs a test that watches a folder. The folder initially contains a.json, a code system with the code a.
func runWatch(t *testing.T, test func(t *testing.T, w *testWatch)) {
	t.Helper()
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &testWatch{folder: folder, tick: 2 * time.Second}
		w.write(t, "a.json", fixture.VersionedSystem("http://x/a", "1", "complete", "a"))
		var err error
		w.Watch, err = terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{folder}, Logger: slog.New(slog.NewTextHandler(&w.log, nil))}, w.tick)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		w.log.take()
		test(t, w)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// write writes a file and sets its modification time to the fake clock.
func (w *testWatch) write(t *testing.T, name, content string) {
	t.Helper()
	name = filepath.Join(w.folder, name)
	fixture.WriteFile(t, name, []byte(content))
	if err := os.Chtimes(name, time.Time{}, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// ticks waits for n watch intervals.
func (w *testWatch) ticks(n int) { w.quarters(4 * n) }

// quarters waits for n quarters of the watch interval.
func (w *testWatch) quarters(n int) {
	time.Sleep(time.Duration(n) * w.tick / 4)
	synctest.Wait()
}

// want checks the codes of a code system in the current library of the watch.
func (w *testWatch) want(t *testing.T, system, codes string) {
	t.Helper()
	got := terminologytest.ExpandWith(t, &api.Handler{CurrentLibrary: w.Current}, "url", system+"?fhir_vs")
	terminologytest.WantCodes(t, got, codes)
}

func TestWatchChange(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		first := w.Current()
		w.want(t, "http://x/a", "a")
		w.ticks(5)
		if w.Current() != first || w.log.take() != "" {
			t.Error("loaded without a change")
		}
		w.write(t, "a.json", fixture.VersionedSystem("http://x/a", "1", "complete", "b")) // same size as the previous content
		w.quarters(2)
		w.want(t, "http://x/a", "a") // not loaded yet, because the file may be incomplete
		w.quarters(1)
		w.want(t, "http://x/a", "b")
		fixture.WantContains(t, w.log.take(), "INFO", "changed definitions loaded", "1 code systems, 1 concepts")
		w.write(t, "sub/b.json", fixture.VersionedSystem("http://x/b", "1", "complete", "c d"))
		w.ticks(2)
		w.want(t, "http://x/b", "c d")
		if s := w.State(); len(s.Files) != 2 || s.Counts.Concepts != 3 || s.Err != nil || time.Since(s.Loaded) >= 2*w.tick || s.LastAttempt.IsZero() {
			t.Errorf("got %+v", s)
		}
		if err := os.Remove(filepath.Join(w.folder, "a.json")); err != nil {
			t.Fatal(err)
		}
		w.ticks(2)
		if c := w.Current().Definitions().Counts(); c.CodeSystems != 1 {
			t.Errorf("holds %v", c)
		}
	})
}

// TestWatchWithinInterval checks that a change is detected within the interval, regardless of when the files are written.
func TestWatchWithinInterval(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		for i := range 40 {
			time.Sleep(time.Duration(i) * w.tick / 39)
			w.write(t, "a.json", fixture.VersionedSystem("http://x/a", "1", "complete", fmt.Sprintf("c%02d", i)))
			w.ticks(1)
			w.want(t, "http://x/a", fmt.Sprintf("c%02d", i))
		}
	})
}

// TestWatchEmptyFolder checks that definitions added to an empty folder are loaded. If all definitions in a folder disappear,
// for example because a volume was unmounted, the watch reports an error and the loaded definitions stay in use.
func TestWatchEmptyFolder(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		name := filepath.Join(w.folder, "a.json")
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		w.ticks(1)
		if s := w.State(); s.Err == nil || !errors.Is(s.Err, fs.ErrNotExist) || s.Counts.Concepts != 1 {
			t.Errorf("all gone: got %+v", s)
		}
		fixture.WantContains(t, w.log.take(), "ERROR", "no file matches any more", "using previous ones")
		w.write(t, "b.json", fixture.VersionedSystem("http://x/b", "1", "complete", "b"))
		w.ticks(1)
		w.want(t, "http://x/b", "b")
	})
	empty := t.TempDir()
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{empty}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	fixture.WriteFile(t, filepath.Join(empty, "a.json"), []byte(fixture.VersionedSystem("http://x/a", "1", "complete", "a")))
	if err := w.Refresh(t.Context()); err != nil || w.State().Counts.Concepts != 1 {
		t.Errorf("first definitions: got %v, %+v", err, w.State())
	}
}

func TestWatchWaitsUntilQuiet(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		first := w.Current()
		for range 5 {
			w.write(t, "a.json", `{"resourceType":`)
			w.quarters(1)
		}
		w.write(t, "a.json", fixture.VersionedSystem("http://x/a", "1", "complete", "b"))
		w.quarters(1)
		if w.Current() != first || w.log.take() != "" {
			t.Error("loaded while it was written")
		}
		w.quarters(1)
		w.want(t, "http://x/a", "b")
	})
}

func TestWatchBroken(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		first := w.Current()
		for name, breaks := range map[string]func(){
			"half a file": func() { w.write(t, "b.json", `{"resourceType":"CodeSystem","url":`) },
			"nothing left": func() {
				if err := os.Rename(w.folder, w.folder+".away"); err != nil {
					t.Fatal(err)
				}
			},
		} {
			breaks()
			w.ticks(2)
			s := w.State()
			if w.Current() != first || s.Err == nil || s.Counts.Concepts != 1 || s.Loaded.Equal(s.LastAttempt) {
				t.Errorf("%s: got %+v", name, s)
			}
			fixture.WantContains(t, w.log.take(), "ERROR", "using previous ones", filepath.Base(w.folder))
			w.ticks(5)
			if log := w.log.take(); log != "" {
				t.Errorf("%s: tried again without a change: %s", name, log)
			}
			_ = os.Rename(w.folder+".away", w.folder)
			_ = os.Remove(filepath.Join(w.folder, "b.json"))
			w.ticks(2)
			if s := w.State(); w.Current() == first || s.Err != nil {
				t.Errorf("%s: got %+v after it was mended", name, s)
			}
			w.log.take()
			first = w.Current()
		}
	})
}

func TestWatchStart(t *testing.T) {
	if _, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{filepath.Join(t.TempDir(), "none")}}, 0); err == nil {
		t.Error("began without its files")
	}
}

// TestWatchWhileServing sends requests while libraries are being replaced. Each response must be based on a single library.
func TestWatchWhileServing(t *testing.T) {
	folder := t.TempDir()
	write := func(n int) {
		codes := []string{"a a a", "b b b"}[n%2]
		codes = strings.ReplaceAll("x1 x2 x3", "x", codes[:1])
		fixture.WriteFile(t, filepath.Join(folder, "a.json"), []byte(fixture.VersionedSystem("http://x/a", "1", "complete", codes)))
		fixture.WriteFile(t, filepath.Join(folder, "b.json"), []byte(fixture.ComposedValueSet("http://x/vs", "1", `{"system":"http://x/a"}`)))
	}
	write(0)
	w, err := terminology.NewWatch(t.Context(), definitions.Options{Definitions: []string{folder}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h := &api.Handler{CurrentLibrary: w.Current, FetchedDefinitions: &terminology.FetchedDefinitions{Source: new(terminologytest.RecordingSource)}}
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				answer, err := terminologytest.Request(h, http.MethodGet, terminologytest.Query("url", "http://x/vs"))
				if err != nil {
					t.Error(err)
					return
				}
				if body := answer.Body.String(); strings.Contains(body, `"a1"`) == strings.Contains(body, `"b3"`) {
					t.Errorf("mixed: %s", body)
				}
			}
		})
	}
	for n := range 50 {
		write(n)
		if err := w.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	close(done)
	group.Wait()
}

// TestWatchSwappedFolder replaces the folder that contains the files, as Kubernetes does for ConfigMaps.
func TestWatchSwappedFolder(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		link := func(target, name string) {
			t.Helper()
			name = filepath.Join(w.folder, name)
			if err := os.Symlink(target, name+".new"); err != nil {
				t.Skip(err)
			}
			if err := os.Rename(name+".new", name); err != nil {
				t.Fatal(err)
			}
		}
		w.write(t, "..1/b.json", fixture.VersionedSystem("http://x/b", "1", "complete", "c"))
		link("..1", "..data")
		link("..data/b.json", "b.json")
		w.ticks(2)
		w.want(t, "http://x/b", "c")
		w.write(t, "..2/b.json", fixture.VersionedSystem("http://x/b", "1", "complete", "d"))
		link("..2", "..data")
		w.ticks(2)
		w.want(t, "http://x/b", "d")
	})
}

// TestRefresh checks that Refresh loads changed files immediately.
func TestRefresh(t *testing.T) {
	runWatch(t, func(t *testing.T, w *testWatch) {
		before := w.Current()
		if err := w.Refresh(t.Context()); err != nil || w.Current() != before {
			t.Errorf("unchanged files were loaded: %v", err)
		}
		w.write(t, "a.json", fixture.VersionedSystem("http://x/a", "2", "complete", "a b c"))
		if err := w.Refresh(t.Context()); err != nil || w.Current() == before {
			t.Errorf("changed files were not loaded: %v", err)
		}
		before = w.Current()
		w.write(t, "a.json", "{")
		for range 2 {
			if err := w.Refresh(t.Context()); err == nil || w.Current() != before {
				t.Errorf("broken files: %v", err)
			}
		}
	})
}

package caddymodule

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
)

// hurry lets the store have been well for as long as a problem needs to be over.
func (w *Watch) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.state.well.IsZero() {
		w.state.well = time.Now().Add(-watchSteady)
	}
}

// A problem counts at once, is logged once, and is over once the store has been well for a while: a store that fails every
// other time has one problem, and one line.
func TestStoreWatch(t *testing.T) {
	t.Parallel()
	for cause, err := range map[store.Cause]error{
		store.CauseFull:     store.ErrFull,
		store.CauseRights:   &store.Fault{Cause: store.CauseRights, Err: errors.New("no +xadd")},
		store.CauseEviction: &store.Fault{Cause: store.CauseEviction, Err: errors.New("allkeys-lru")},
		store.CauseGone:     &store.Fault{Cause: store.CauseGone, Err: errors.New("moved")},
		store.CauseFailed:   errors.New("fails"),
	} {
		synctest.Test(t, func(t *testing.T) {
			var fails atomic.Bool
			var trials atomic.Int64
			var log bytes.Buffer
			w := newStoreWatch("kind", func(context.Context) error {
				trials.Add(1)
				if fails.Load() {
					return err
				}
				return nil
			})
			w.start(slog.New(slog.NewTextHandler(&log, nil)))
			defer synctest.Wait()
			defer w.stop()
			check := func() error { time.Sleep(watchFresh); return w.check(t.Context()) }
			if err := check(); err != nil || log.Len() > 0 {
				t.Fatalf("%s: at first: %v, %s", cause, err, &log)
			}
			for i := range 20 {
				fails.Store(i%3 == 0) // well twice in a row
				if err := check(); store.CauseOf(err) != cause || !w.causes()[cause] {
					t.Errorf("%s, trial %d: %v", cause, i, err)
				}
			}
			fails.Store(false)
			time.Sleep(watchSteady + 2*watchTrouble)
			if err := check(); err != nil || w.causes()[cause] {
				t.Errorf("%s: %v goes on", cause, err)
			}
			if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), "cause="+string(cause)) {
				t.Errorf("%s: %d lines:\n%s", cause, lines, &log)
			}
			before := trials.Load()
			for range 1000 {
				if err := w.check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if n := trials.Load() - before; n > 1 {
				t.Errorf("%d trials for 1000 questions at once", n)
			}
		})
	}
}

// A store that hangs is not waited for.
func TestStoreWatchIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs := make(chan struct{})
		w := newLocalWatch("kind", nil)
		w.try = func(context.Context) error { <-hangs; return nil }
		w.logger.Store(slog.New(slog.DiscardHandler))
		for range 3 {
			began := time.Now()
			if err := w.check(t.Context()); !errors.Is(err, store.ErrUnavailable) || time.Since(began) > CheckTimeout {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		close(hangs)
		synctest.Wait()
		w.stop()
	})
}

// A store whose mark is another has lost what it held, which is told once.
func TestStoreCameBackEmpty(t *testing.T) {
	newTestServer(t)
	g := newPeer(t, "a", t.TempDir())
	watch := g.app.stores.watched[g.app.stores.Store]
	if err := watch.check(t.Context()); err != nil || watch.causes()[store.CauseEmptied] {
		t.Fatalf("at first: %v, %v", err, watch.causes())
	}
	if err := g.app.stores.shared[0].remote.Delete(t.Context(), store.IssuerKey); err != nil {
		t.Fatal(err)
	}
	await(t, "it is noticed", func() bool { _ = watch.check(t.Context()); return watch.causes()[store.CauseEmptied] })
	status, answer := readyWith(t, g.Context)
	if status != 200 || len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], "came back empty") {
		t.Errorf("%d %+v", status, answer)
	}
	if lines := g.logged("has lost what it held"); len(lines) != 1 {
		t.Errorf("%d lines", len(lines))
	}
	if g.series()["caddy_fhir_store_problem cause=emptied store=test_shared"] != 1 {
		t.Error("not in the metrics")
	}
}

// What is wrong with a local store is named by ready, and by a metric.
func TestReadyNamesLocalTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		part, cause string
		harm        func(t *testing.T, app *App, folder string)
	}{
		"memory store full": {"store", "memory full", func(t *testing.T, app *App, _ string) {
			memory := app.stores.Store.(*MemoryStore)
			t.Cleanup(func() { // the store is that of all gateways of the process
				memory.SetMaxEntries(0)
				await(t, "it is well again", func() bool { memory.watched.hurry(); return memory.watched.check(context.Background()) == nil })
			})
			for i := range 3 {
				if err := memory.Put(t.Context(), "k:"+string(rune('a'+i)), nil, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			memory.SetMaxEntries(3)
		}},
		"file at max_entries": {"durable_store", "file full", func(t *testing.T, app *App, _ string) {
			if err := app.stores.Durable.Put(t.Context(), "k:1", nil, time.Minute); err != nil {
				t.Fatal(err)
			}
			app.stores.Durable.(*FileStore).SetMaxEntries(1)
		}},
		"file gone": {"durable_store", "file gone", func(t *testing.T, _ *App, folder string) {
			if err := os.Remove(filepath.Join(folder, "fhir", "localhost-8443.db")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			g := newGatewayAt(t, exampleWith(t, "", ""), folder)
			app, err := fhirapp.Find[*App](g.Context)
			if err != nil {
				t.Fatal(err)
			}
			if err := app.startStores(); err != nil {
				t.Fatal(err)
			}
			if status, answer := readyWith(t, g.Context); status != 200 {
				t.Fatalf("at first: %+v", answer)
			}
			tt.harm(t, app, folder)
			kind, cause, _ := strings.Cut(tt.cause, " ")
			await(t, "it is noticed", func() bool {
				status, answer := readyWith(t, g.Context)
				return status == 503 && answer.Parts[tt.part] == cause && len(answer.Problems) == 1
			})
			if g.series()["caddy_fhir_store_problem cause="+cause+" store="+kind] != 1 {
				t.Error("not in the metrics")
			}
		})
	}
}

// A file that is missing at a start was lost if there are keys: at the first start there are none.
func TestStoreIsLostAtStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "fhir", "localhost-8443.db")
	for _, lost := range []bool{false, true} {
		g := newGatewayAt(t, exampleWith(t, "", ""), folder)
		app, err := fhirapp.Find[*App](g.Context)
		if err != nil {
			t.Fatal(err)
		}
		if err := app.startStores(); err != nil {
			t.Fatal(err)
		}
		if got := app.stores.watched[app.stores.Durable].causes()[store.CauseEmptied]; got != lost {
			t.Errorf("lost: %t, want %t", got, lost)
		}
		g.token()
		_, _ = fileStores.Delete(path) // as at the end of a process
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

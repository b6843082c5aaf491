package fhirapp

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// A store whose mark is another has lost what it held, which is told once.
func TestStoreCameBackEmpty(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.Folder(t))
	emptied := func() bool { return isEmptied(t, g.app) }
	if emptied() {
		t.Fatal("at first")
	}
	if err := server.Gateway().Delete(t.Context(), store.IssuerKey); err != nil {
		t.Fatal(err)
	}
	await(t, "it is noticed", func() bool { g.app.stores.Settle(); return emptied() })
	if err := g.app.keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
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
		"memory store full": {"memory", "memory full", func(t *testing.T, app *App, _ string) {
			memory := app.stores.Store.(*memory.Store)
			t.Cleanup(func() { // the store is that of all gateways of the process
				memory.SetMaxEntries(0)
				await(t, "it is well again", func() bool { app.stores.Settle(); return app.stores.Health(context.Background())[1].Problem == nil })
			})
			for i := range 3 {
				if err := memory.Put(t.Context(), "k:"+string(rune('a'+i)), nil, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			memory.SetMaxEntries(3)
		}},
		"file at max_entries": {"store", "file full", func(t *testing.T, app *App, _ string) {
			if err := app.stores.Durable.Put(t.Context(), "k:1", nil, time.Minute); err != nil {
				t.Fatal(err)
			}
			app.stores.Durable.(*file.Store).Store.(*boltstore.Store).SetMaxEntries(1)
		}},
		"file gone": {"store", "file gone", func(t *testing.T, _ *App, folder string) {
			if err := os.Remove(filepath.Join(folder, "fhir", "localhost-8443.db")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
			app, err := fhirbase.Find[*App](g.Context)
			if err != nil {
				t.Fatal(err)
			}
			if err := app.startStores(); err != nil {
				t.Fatal(err)
			}
			if err := app.keys.Refresh(t.Context()); err != nil { // making keys may take longer than ready waits
				t.Fatal(err)
			}
			if status, answer := readyWith(t, g.Context); status != 200 {
				t.Fatalf("at first: %+v", answer)
			}
			tt.harm(t, app, folder)
			kind, cause, _ := strings.Cut(tt.cause, " ")
			await(t, "it is noticed", func() bool {
				app.stores.Settle()
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
		g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
		app, err := fhirbase.Find[*App](g.Context)
		if err != nil {
			t.Fatal(err)
		}
		if err := app.startStores(); err != nil {
			t.Fatal(err)
		}
		if got := isEmptied(t, app); got != lost {
			t.Errorf("lost: %t, want %t", got, lost)
		}
		g.Token()
		_ = app.stores.Durable.(*file.Store).Cleanup() // as at the end of a process
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// isEmptied reports whether a store of an app came back empty.
func isEmptied(t *testing.T, app *App) bool {
	return slices.ContainsFunc(app.stores.Health(t.Context()), func(h stores.Health) bool {
		return slices.ContainsFunc(h.Warnings, func(w string) bool { return strings.HasPrefix(w, "it came back empty") })
	})
}

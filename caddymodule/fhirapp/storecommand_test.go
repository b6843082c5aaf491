package fhirapp

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storecopy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

// storeSite is a file store and a store elsewhere, each named by a configuration.
type storeSite struct {
	t            *testing.T
	path         string // of the file
	file, shared string // configurations
	server       *testServer
	out          bytes.Buffer
}

func newStoreSite(t *testing.T) *storeSite {
	t.Helper()
	s := &storeSite{t: t, path: filepath.Join(t.TempDir(), "store.db"), server: newTestServer(t)}
	s.file = s.fileConfiguration("")
	s.shared = s.configuration("store test_shared {\n\t\t\tserver " + t.Name() + "\n\t\t}")
	return s
}

func (s *storeSite) fileConfiguration(option string) string {
	return s.configuration("store file {\n\t\t\tpath " + s.path + "\n\t\t\t" + option + "}")
}

func (s *storeSite) configuration(options string) string {
	return gatewaytest.WriteFile(s.t, "Caddyfile", "{\n\tstorage file_system /nowhere\n\tfhir {\n\t\tissuer https://x.example\n\t\t"+options+"\n\t}\n}\n")
}

// inFile uses the file as a gateway does.
func (s *storeSite) inFile(use func(*boltstore.Store)) {
	s.t.Helper()
	file := boltstore.New(s.path, 0)
	use(file)
	if err := file.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storeSite) put(in store.Store, key, value string) {
	s.t.Helper()
	if err := in.Put(s.t.Context(), key, []byte(value), time.Hour); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storeSite) want(in store.Store, key, value string) {
	s.t.Helper()
	if got, err := in.Get(s.t.Context(), key); err != nil || string(got) != value {
		s.t.Errorf("%s: %q, %v, want %q", key, got, err, value)
	}
}

func (s *storeSite) copy(from, to string, merge bool) error {
	s.out.Reset()
	return (&storeCopier{out: &s.out, merge: merge, opener: storeOpener{lockTimeout: time.Millisecond}}).run(s.t.Context(), from, to)
}

func TestStoreCopyCommand(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	elsewhere := s.server.gateway("")
	s.inFile(func(f *boltstore.Store) { s.put(f, "refresh:1", "v"); s.put(f, "revoked:1", "") })
	if err := s.copy(s.file, s.shared, false); err != nil {
		t.Fatal(err)
	}
	s.want(elsewhere, "refresh:1", "v")
	s.want(elsewhere, "revoked:1", "")
	for _, want := range []string{s.path, "test_shared store of " + s.shared, "copied 2", "compared all 2", "which both configurations share"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
	s.put(elsewhere, "refresh:1", "newer")
	if err := s.copy(s.shared, s.file, false); !errors.Is(err, storecopy.ErrNotEmpty) || !strings.Contains(err.Error(), "--merge") {
		t.Errorf("back to a file that has entries: %v", err)
	}
	if err := s.copy(s.file, s.shared, true); err != nil {
		t.Error(err)
	}
	s.want(elsewhere, "refresh:1", "newer")
	s.path += ".new"
	if err := s.copy(s.shared, s.fileConfiguration(""), false); err != nil {
		t.Error(err)
	}
	s.inFile(func(f *boltstore.Store) { s.want(f, "refresh:1", "newer") })
}

func TestStoreCopyRefused(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	memory := s.configuration("store memory")
	asJSON := gatewaytest.WriteFile(t, "config.json", string(caddyconfig.JSON(map[string]any{"apps": map[string]any{
		"fhir": map[string]any{"issuer": "https://x.example", "store": onServer(t, "")},
	}}, nil)))
	for name, tt := range map[string]struct{ from, to, want string }{
		"a file that is not there": {s.file, s.shared, "not there"},
		"a store in memory":        {s.shared, memory, "memory of a gateway"},
		"no source":                {"", s.shared, "--from"},
		"no such configuration":    {"/nowhere/Caddyfile", s.shared, "/nowhere"},
		"without the app":          {gatewaytest.WriteFile(t, "Caddyfile", "localhost\n"), s.shared, "fhir"},
		"the same store":           {s.shared, asJSON, storecopy.ErrSame.Error()},
	} {
		if err := s.copy(tt.from, tt.to, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that a gateway holds is not copied.
func TestStoreCopyWhileRunning(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.inFile(func(f *boltstore.Store) {
		s.put(f, "refresh:1", "v")
		if err := s.copy(s.file, s.shared, false); err == nil || !strings.Contains(err.Error(), "a gateway may still run") {
			t.Error(err)
		}
	})
}

// No gateway starts with the target of an interrupted copy.
func TestStoreCopyInterrupted(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	for i := range 1000 {
		s.put(s.server.gateway(""), fmt.Sprint("refresh:", i), "v")
	}
	small := s.fileConfiguration("max_entries 500\n\t\t")
	start := func() error {
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: caddyconfig.JSON(map[string]any{"store": "file", "path": s.path}, nil)})
		if err != nil {
			t.Fatal(err)
		}
		return errors.Join(app.startStores(), app.stores.Durable.(*file.Store).Cleanup())
	}
	if err := s.copy(s.shared, small, false); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "max_entries") {
		t.Fatalf("into a store that is full: %v", err)
	}
	if err := start(); !errors.Is(err, storecopy.ErrIncomplete) {
		t.Errorf("a gateway starts: %v", err)
	}
	if err := s.copy(s.shared, s.file, false); err != nil {
		t.Error(err)
	}
	if err := start(); err != nil {
		t.Error(err)
	}
	s.inFile(func(f *boltstore.Store) { s.want(f, "refresh:999", "v") })
}

func TestKeysAfterStoreCopy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to keysPlace
		want     string
	}{
		{keysPlace{true, "a"}, keysPlace{true, "b"}, "copied too"},
		{keysPlace{true, "a"}, keysPlace{false, "a"}, "no store_key"},
		{keysPlace{false, "a"}, keysPlace{true, "a"}, "first gateway"},
		{keysPlace{false, "a"}, keysPlace{false, "a"}, "which both"},
		{keysPlace{false, "a"}, keysPlace{false, "b"}, "another one"},
		{keysPlace{false, "a"}, keysPlace{true, "b"}, "another one"},
	} {
		if got := (&configuredStore{keys: tt.from}).keysAt(&configuredStore{keys: tt.to}); !strings.Contains(got, tt.want) {
			t.Errorf("%+v to %+v: %s", tt.from, tt.to, got)
		}
	}
}

// A gateway that runs is noticed though nobody asks it anything, in a store elsewhere too.
func TestStoreCopyWhileIdleGatewayRuns(t *testing.T) {
	t.Parallel()
	// The store in memory, which configurations share, is swept by a goroutine that would not end with the bubble.
	memory := new(memory.Store)
	if err := memory.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Cleanup() })
	synctest.Test(t, func(t *testing.T) {
		s := newStoreSite(t)
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: onServer(t, "")})
		if err != nil {
			t.Fatal(err)
		}
		if err := app.startStores(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := s.copy(s.shared, s.file, false); !errors.Is(err, storecopy.ErrRunning) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("while it runs: %v", err)
		}
		if err := s.server.used[0].Cleanup(); err != nil {
			t.Fatal(err)
		}
		if err := s.copy(s.shared, s.file, false); err != nil {
			t.Errorf("after it has stopped: %v", err)
		}
	})
}

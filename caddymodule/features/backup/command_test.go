package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/backup/storecopy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(sharedStore)) }

// sharedStore is a store module for a store that gateways share.
type sharedStore struct {
	// The name of the test. Required.
	Server string `json:"server"`

	stores.Shared
}

// servers maps names of tests to their stores.
var servers sync.Map

func (*sharedStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.test_shared", New: func() caddy.Module { return new(sharedStore) }}
}

func (s *sharedStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{"server": option.Word(&s.Server, nil)})
}

func (s *sharedStore) Provision(caddy.Context) error {
	server, ok := servers.Load(s.Server)
	if !ok {
		return errors.New("no such server")
	}
	gateway := server.(*storetest.Gateway)
	return s.Open("test_shared", s.Server, func(*slog.Logger) (*stores.Remote, error) {
		return &stores.Remote{
			SharedStore: gateway, Check: func(context.Context) error { return nil }, Close: func() error { return nil },
			CountConnections: func() (open, used int) { return 3, 1 },
		}, nil
	})
}

// storeSite has a file store and a shared store, each with its own configuration.
type storeSite struct {
	t            *testing.T
	path         string // path of the store's file
	file, shared string // configurations with the file store and the shared store
	elsewhere    *storetest.Gateway
	out          bytes.Buffer
}

func newStoreSite(t *testing.T) *storeSite {
	t.Helper()
	s := &storeSite{t: t, path: filepath.Join(t.TempDir(), "store.db"), elsewhere: storetest.NewSharedMemory(stores.SubscribedKinds()...).Gateway()}
	servers.Store(t.Name(), s.elsewhere)
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

// inFile opens the file as a gateway does, and calls use with the store.
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
	return (&storeCopier{out: &s.out, merge: merge, opener: fhirapp.StoreOpener{LockTimeout: time.Millisecond}}).run(s.t.Context(), from, to)
}

func TestStoreCopyCommand(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.inFile(func(f *boltstore.Store) { s.put(f, "refresh:1", "v"); s.put(f, "revoked:1", "") })
	if err := s.copy(s.file, s.shared, false); err != nil {
		t.Fatal(err)
	}
	s.want(s.elsewhere, "refresh:1", "v")
	s.want(s.elsewhere, "revoked:1", "")
	for _, want := range []string{s.path, "test_shared store of " + s.shared, "copied 2", "verified 2.", "which both configurations share"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("%q is not in\n%s", want, s.out.String())
		}
	}
	s.put(s.elsewhere, "refresh:1", "newer")
	if err := s.copy(s.shared, s.file, false); !errors.Is(err, storecopy.ErrNotEmpty) || !strings.Contains(err.Error(), "--merge") {
		t.Errorf("back to a file that has entries: %v", err)
	}
	if err := s.copy(s.file, s.shared, true); err != nil {
		t.Error(err)
	}
	s.want(s.elsewhere, "refresh:1", "newer")
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
		"fhir": map[string]any{"issuer": "https://x.example", "store": map[string]string{"store": "test_shared", "server": t.Name()}},
	}}, nil)))
	for name, tt := range map[string]struct{ from, to, want string }{
		"a file that is not there": {s.file, s.shared, "does not exist"},
		"a store in memory":        {s.shared, memory, "in a gateway's memory"},
		"no source":                {"", s.shared, "--from"},
		"no such configuration":    {"/nowhere/Caddyfile", s.shared, "/nowhere"},
		"without the app":          {gatewaytest.WriteFile(t, "Caddyfile", "localhost\n"), s.shared, "fhir"},
		"the same store":           {s.shared, asJSON, storecopy.ErrSameStore.Error()},
	} {
		if err := s.copy(tt.from, tt.to, false); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The command refuses to copy a file that a gateway is using.
func TestStoreCopyWhileRunning(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	s.inFile(func(f *boltstore.Store) {
		s.put(f, "refresh:1", "v")
		if err := s.copy(s.file, s.shared, false); err == nil || !strings.Contains(err.Error(), "opening the durable store (stop any gateway that uses it)") {
			t.Error(err)
		}
	})
}

// The target of an interrupted copy stays marked until the same command completes the copy.
func TestStoreCopyInterrupted(t *testing.T) {
	t.Parallel()
	s := newStoreSite(t)
	for i := range 1000 {
		s.put(s.elsewhere, fmt.Sprint("refresh:", i), "v")
	}
	small := s.fileConfiguration("max_entries 500\n\t\t")
	if err := s.copy(s.shared, small, false); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "max_entries") {
		t.Fatalf("into a store that is full: %v", err)
	}
	s.inFile(func(f *boltstore.Store) {
		if err := copyguard.CheckComplete(t.Context(), f); !errors.Is(err, copyguard.ErrIncomplete) {
			t.Errorf("gateways may use the target: %v", err)
		}
	})
	if err := s.copy(s.shared, s.file, false); err != nil {
		t.Error(err)
	}
	s.inFile(func(f *boltstore.Store) {
		s.want(f, "refresh:999", "v")
		if err := copyguard.CheckComplete(t.Context(), f); err != nil {
			t.Error(err)
		}
	})
}

func TestKeysAfterStoreCopy(t *testing.T) {
	t.Parallel()
	place := func(inStore bool, storage string) fhirapp.KeysLocation {
		return fhirapp.KeysLocation{InStore: inStore, Storage: storage}
	}
	for _, tt := range []struct {
		from, to fhirapp.KeysLocation
		want     string
	}{
		{place(true, "a"), place(true, "b"), "copied, too"},
		{place(true, "a"), place(false, "a"), "no store_key"},
		{place(false, "a"), place(true, "a"), "first gateway"},
		{place(false, "a"), place(false, "a"), "which both"},
		{place(false, "a"), place(false, "b"), "uses a different storage"},
		{place(false, "a"), place(true, "b"), "uses a different storage"},
	} {
		if got := describeKeys(tt.from, tt.to); !strings.Contains(got, tt.want) {
			t.Errorf("%+v to %+v: %s", tt.from, tt.to, got)
		}
	}
}

// The command refuses to copy a store with the mark of a running gateway.
func TestStoreCopyWhileAnnounced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStoreSite(t)
		ctx, stop := context.WithCancel(t.Context())
		go copyguard.Announce(ctx, s.elsewhere)
		synctest.Wait()
		if err := s.copy(s.shared, s.file, false); !errors.Is(err, copyguard.ErrRunning) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("while it runs: %v", err)
		}
		stop()
		synctest.Wait()
		if err := s.copy(s.shared, s.file, false); err != nil {
			t.Errorf("after it has stopped: %v", err)
		}
	})
}

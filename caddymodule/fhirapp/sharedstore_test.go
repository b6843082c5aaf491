package fhirapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/storemark"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func init() { caddy.RegisterModule(new(testStore)) }

// testStore is a guest module whose store several gateways of a test share.
type testStore struct {
	// The test's server. Two modules with the same one are the same gateway's.
	Server string `json:"server,omitempty"`

	// A gateway at that server. Default: the same as others without one.
	Gateway string `json:"gateway,omitempty"`

	stores.Shared
}

// testServers are the servers of tests, by name.
var testServers sync.Map

// testServersMade counts them: a test that runs twice in a process must not get the store that the pool keeps of its first run.
var testServersMade atomic.Int64

// A testServer is a store, and what a check of it says.
type testServer struct {
	*storetest.Shared
	number int64
	unfit  error
	mu     sync.Mutex
	byName map[string]*storetest.Gateway
	closed int
	used   []*testStore // by configurations
}

// newTestServer makes a server with the test's name.
func newTestServer(t *testing.T) *testServer {
	t.Helper()
	s := &testServer{
		Shared: storetest.NewShared(stores.FollowedKinds()...),
		number: testServersMade.Add(1),
		byName: map[string]*storetest.Gateway{},
	}
	testServers.Store(t.Name(), s)
	return s
}

// gateway returns a gateway's handle on the server.
func (s *testServer) gateway(name string) *storetest.Gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[name] == nil {
		s.byName[name] = s.Gateway()
	}
	return s.byName[name]
}

func (s *testServer) check(ctx context.Context) error {
	if s.unfit != nil {
		return s.unfit
	}
	_, err := s.Gateway().List(ctx, "none:")
	return err
}

func (*testStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.test_shared", New: func() caddy.Module { return new(testStore) }}
}

func (s *testStore) Provision(caddy.Context) error {
	known, ok := testServers.Load(s.Server)
	if !ok {
		return errors.New("no such server")
	}
	server := known.(*testServer)
	server.mu.Lock()
	server.used = append(server.used, s)
	server.mu.Unlock()
	return s.Use("test_shared", fmt.Sprint(server.number, " ", s.Gateway), func(*slog.Logger) (*stores.Remote, error) {
		return &stores.Remote{
			Shared: server.gateway(s.Gateway), Check: server.check,
			Close:       func() error { server.mu.Lock(); defer server.mu.Unlock(); server.closed++; return nil },
			Connections: func() (open, used int) { return 3, 1 },
			Own:         "an option",
		}, nil
	})
}

// onServer is the configuration of a store at the test's server.
func onServer(t *testing.T, gateway string) json.RawMessage {
	return caddyconfig.JSON(map[string]string{"store": "test_shared", "server": t.Name(), "gateway": gateway}, nil)
}

func TestStoreServesAsBoth(t *testing.T) {
	t.Parallel()
	newTestServer(t)
	for name, tt := range map[string]struct {
		store json.RawMessage
		same  bool
	}{
		"shared": {onServer(t, ""), true}, "in memory": {json.RawMessage(`{"store":"memory"}`), true},
		"in a file": {json.RawMessage(`{"store":"file"}`), false}, "the default": {nil, false},
	} {
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: tt.store})
		if err != nil {
			t.Fatal(err)
		}
		if same := app.stores.Store == app.stores.Durable; same != tt.same {
			t.Errorf("%s: codes are where sessions are: %t", name, same)
		}
	}
}

// A store that cannot be used refuses the configuration; one that cannot be reached does not.
func TestSharedStoreIsChecked(t *testing.T) {
	t.Parallel()
	server := newTestServer(t)
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: onServer(t, "")})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	app.logger = slog.New(slog.NewTextHandler(&log, nil))
	server.SetDown(true)
	if err := app.startStores(); err != nil || strings.Count(log.String(), "starting without the store") != 1 {
		t.Errorf("a store that is down: %v\n%s", err, log.String())
	}
	server.SetDown(false)
	server.unfit = errors.New("it evicts")
	if err := app.startStores(); !errors.Is(err, server.unfit) {
		t.Errorf("a store that is unfit: %v", err)
	}
}

// An idle gateway announces itself in a shared store, so that the store is not copied meanwhile.
func TestIdleGatewayIsAnnounced(t *testing.T) {
	t.Parallel()
	// The store in memory, which configurations share, is swept by a goroutine that would not end with the bubble.
	memory := new(memory.Store)
	if err := memory.Provision(caddy.Context{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Cleanup() })
	synctest.Test(t, func(t *testing.T) {
		server := newTestServer(t)
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: onServer(t, "")})
		if err != nil {
			t.Fatal(err)
		}
		if err := app.startStores(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := storemark.CheckRunning(t.Context(), server.gateway("")); !errors.Is(err, storemark.ErrRunning) {
			t.Errorf("while it runs: %v", err)
		}
		if err := server.used[0].Cleanup(); err != nil {
			t.Fatal(err)
		}
		if err := storemark.CheckRunning(t.Context(), server.gateway("")); err != nil {
			t.Errorf("after it has stopped: %v", err)
		}
	})
}

// No gateway starts with the target of an incomplete copy.
func TestIncompleteCopyIsRefused(t *testing.T) {
	t.Parallel()
	server := newTestServer(t)
	start := func() error {
		app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: onServer(t, "")})
		if err != nil {
			t.Fatal(err)
		}
		return app.startStores()
	}
	if err := server.gateway("").Put(t.Context(), storemark.Incomplete, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, storemark.ErrIncomplete) {
		t.Errorf("a gateway starts: %v", err)
	}
	if err := server.gateway("").Delete(t.Context(), storemark.Incomplete); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Error(err)
	}
}

func TestKeysInFilesWarn(t *testing.T) {
	t.Parallel()
	newTestServer(t)
	for _, tt := range []struct {
		name string
		app  App
		want string // none: no warning
	}{
		{"none shared", App{}, ""},
		{"shared", App{StoreRaw: onServer(t, "")}, "signing keys and registered clients are in files"},
		{"shared, and the keys", App{StoreRaw: onServer(t, ""), StoreKeys: []string{storeKey}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.app.Issuer = "https://x.example"
			app, _, err := provisionApp(t, &tt.app)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			app.stores.Warn(slog.New(slog.NewTextHandler(&log, nil)), app.ctx.Storage(), len(app.StoreKeys) > 0)
			if warned := log.String(); tt.want == "" && warned != "" || !strings.Contains(warned, tt.want) {
				t.Errorf("warned\n%s\nwant %q", warned, tt.want)
			}
		})
	}
}

package fhirapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/boltstore"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/copyguard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/file"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores/memory"
)

func init() { caddy.RegisterModule(new(testStore)) }

// testStore is a store module with a store that several gateways in a test can share.
type testStore struct {
	// The test server, as the address of a shared store. Default: none.
	Server string `json:"server,omitempty"`

	// The name of a gateway at the test server. Default: a gateway shared by all modules that have no name.
	Gateway string `json:"gateway,omitempty"`

	stores.Shared
}

// testServers contains the test servers by name.
var testServers sync.Map

// testServersMade counts testServers, so that a repeated test does not reuse the pooled store of its previous run.
var testServersMade atomic.Int64

// A testServer is a shared store with a configurable result of its check.
type testServer struct {
	*storetest.SharedMemory
	number int64
	unfit  error
	mu     sync.Mutex
	byName map[string]*storetest.Gateway
	closed int
	used   []*testStore // store modules that have used the server
}

// newTestServer returns a server named after the test.
func newTestServer(t *testing.T) *testServer {
	t.Helper()
	s := &testServer{
		SharedMemory: storetest.NewSharedMemory(stores.SubscribedKinds()...),
		number:       testServersMade.Add(1),
		byName:       map[string]*storetest.Gateway{},
	}
	testServers.Store(t.Name(), s)
	return s
}

// gateway returns the handle of the named gateway on the server.
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
	loaded, ok := testServers.Load(s.Server)
	if !ok {
		return errors.New("no such server")
	}
	server := loaded.(*testServer)
	server.mu.Lock()
	server.used = append(server.used, s)
	server.mu.Unlock()
	return s.Open("test_shared", fmt.Sprint(server.number, " ", s.Gateway), func(*slog.Logger) (*stores.Remote, error) {
		return &stores.Remote{
			SharedStore: server.gateway(s.Gateway), Check: server.check,
			Close:             func() error { server.mu.Lock(); defer server.mu.Unlock(); server.closed++; return nil },
			CountConnections:  func() (open, used int) { return 3, 1 },
			SeparateStoreHint: "an option",
		}, nil
	})
}

// onServer returns the JSON configuration of a store on the test's server.
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

// An unusable store prevents the configuration from loading, but an unreachable store does not.
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
	if err := app.startStores(); err != nil || strings.Count(log.String(), "store unavailable at startup; starting anyway") != 1 {
		t.Errorf("a store that is down: %v\n%s", err, log.String())
	}
	server.SetDown(false)
	server.unfit = errors.New("it evicts")
	if err := app.startStores(); !errors.Is(err, server.unfit) {
		t.Errorf("a store that is unfit: %v", err)
	}
}

// An idle gateway announces itself in a shared store, so that the store is not copied while the gateway uses it.
func TestIdleGatewayIsAnnounced(t *testing.T) {
	t.Parallel()
	// The memory store, which configurations share, has a goroutine that would outlive the bubble.
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
		if err := copyguard.CheckNotRunning(t.Context(), server.gateway("")); !errors.Is(err, copyguard.ErrRunning) {
			t.Errorf("while it runs: %v", err)
		}
		if err := server.used[0].Cleanup(); err != nil {
			t.Fatal(err)
		}
		if err := copyguard.CheckNotRunning(t.Context(), server.gateway("")); err != nil {
			t.Errorf("after it has stopped: %v", err)
		}
	})
}

// A gateway does not start if its store is the target of an incomplete copy.
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
	if err := server.gateway("").Put(t.Context(), copyguard.IncompleteKey, nil, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, copyguard.ErrIncomplete) {
		t.Errorf("a gateway starts: %v", err)
	}
	if err := server.gateway("").Delete(t.Context(), copyguard.IncompleteKey); err != nil {
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
		want string // "" means that there is no warning
	}{
		{"none shared", App{}, ""},
		{"shared", App{StoreRaw: onServer(t, "")}, "signing keys and registered clients are in local files"},
		{"shared, and the keys", App{StoreRaw: onServer(t, ""), StoreKeys: []string{storeKey}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.app.Issuer = "https://x.example"
			app, _, err := provisionApp(t, &tt.app)
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			app.stores.LogWarnings(slog.New(slog.NewTextHandler(&log, nil)), app.ctx.Storage(), len(app.StoreKeys) > 0)
			if warned := log.String(); tt.want == "" && warned != "" || !strings.Contains(warned, tt.want) {
				t.Errorf("warned\n%s\nwant %q", warned, tt.want)
			}
		})
	}
}

const issuerX, issuerY = "https://x.example", "https://y.example"

// A store rejects a second issuer with an error that contains both issuers and a hint. The first issuer can still use it.
func TestStoreOfOtherIssuer(t *testing.T) {
	t.Parallel()
	newTestServer(t)
	start := func(issuer, gateway string) (*App, error) {
		app, _, err := provisionApp(t, &App{Issuer: issuer, StoreRaw: onServer(t, gateway)})
		if err != nil {
			t.Fatal(err)
		}
		return app, app.startStores()
	}
	x, err := start(issuerX, "x")
	if err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []string{"y", "x"} { // at another gateway, and after a reload
		_, err := start(issuerY, gateway)
		if err == nil || !strings.Contains(err.Error(), issuerX) || !strings.Contains(err.Error(), issuerY) || !strings.Contains(err.Error(), "separate store for each issuer (an option)") {
			t.Errorf("at gateway %s: %v", gateway, err)
		}
	}
	if _, err := start(issuerX, "another"); err != nil {
		t.Errorf("another gateway of the same issuer: %v", err)
	}
	if err := x.stores.Store.Put(t.Context(), "k", nil, time.Minute); err != nil {
		t.Errorf("the first: %v", err)
	}
}

// The durable store is located next to the keys. It is created when the app starts, not before, and only its owner can read it.
func TestDurableStore(t *testing.T) {
	t.Parallel()
	app, root, err := provisionApp(t, &App{Issuer: "https://x.example:8443"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "fhir", "x.example-8443.db")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the start: %v", err)
	}
	startApp(t, app)
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after it: %v, %v", info, err)
	}
}

// startApp starts only the app and waits for its background work.
func startApp(t *testing.T, app *App) {
	t.Helper()
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := app.keys.JWKS(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDurableStoreElsewhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	t.Setenv("DURABLE", path)
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: json.RawMessage(`{"store":"file","path":"{env.DURABLE}"}`)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	startApp(t, app)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// A store file that another process has locked prevents the configuration from starting. The error contains the file and the
// option.
func TestDurableStoreInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "held.db")
	opened := boltstore.New(path, 0)
	if err := opened.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	app, _, err := provisionApp(t, &App{Issuer: "https://x.example", StoreRaw: caddyconfig.JSON(map[string]any{"store": "file", "path": path}, nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = app.stores.Durable.(*file.Store).Cleanup() })
	synctest.Test(t, func(t *testing.T) { // the app waits for the other process to release the lock
		if err := app.Start(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "store") {
			t.Errorf("error %v", err)
		}
	})
}

// A refresh token survives a reload, and a restart of which only the storage folder remains.
func TestRefreshTokenOutlivesRestart(t *testing.T) {
	t.Parallel()
	folder := gatewaytest.StorageFolder(t)
	var apps []*App
	start := func() *gateway {
		g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
		app, err := fhirbase.FindApp[*App](g.Context)
		if err != nil {
			t.Fatal(err)
		}
		apps = append(apps, app)
		return g
	}
	before := start()
	request := gatewaytest.DemoRequest()
	request.Set("scope", "openid offline_access")
	tokens := before.exchange(gatewaytest.CodeForm(before.CodeFor(request)))
	reloaded := start()
	tokens = reloaded.exchange(refreshForm(tokens["refresh_token"]))
	for _, app := range apps { // both configurations stop, as when the process exits
		if err := app.stores.Durable.(*file.Store).Cleanup(); err != nil {
			t.Fatal(err)
		}
	}
	restarted := start()
	if tokens = restarted.exchange(refreshForm(tokens["refresh_token"])); tokens["access_token"] == nil {
		t.Errorf("after a restart: %v", tokens)
	}
	_ = apps[2].stores.Durable.(*file.Store).Cleanup()
}

func refreshForm(token any) url.Values {
	text, _ := token.(string)
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {"demo-app"}, "refresh_token": {text}}
}

func (g *gateway) exchange(form url.Values) map[string]any {
	g.t.Helper()
	response := g.Post("/oauth2/token", form)
	answer := map[string]any{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK {
		g.t.Fatalf("token endpoint: %d %v, %v", response.StatusCode, answer, err)
	}
	return answer
}

// Reuse of a refresh token invalidates the access tokens of its grant at the guard, including cached tokens.
func TestGuardRefusesRevokedFamily(t *testing.T) {
	t.Parallel()
	backend := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	g := exampleGateway(t, backend)
	request := gatewaytest.DemoRequest()
	request.Set("scope", "openid user/*.rs offline_access")
	first := g.exchange(gatewaytest.CodeForm(g.CodeFor(request)))
	second := g.exchange(refreshForm(first["refresh_token"]))
	third := g.exchange(refreshForm(second["refresh_token"]))
	tokens := []string{first["access_token"].(string), second["access_token"].(string), third["access_token"].(string)}
	passes := func(want int) {
		for i, token := range tokens {
			if r := g.Get("/fhir/R4/Patient/1", token); r.StatusCode != want {
				t.Errorf("access token %d: %d, want %d", i, r.StatusCode, want)
			}
		}
	}
	passes(http.StatusOK)
	if r := g.Post("/oauth2/token", refreshForm(first["refresh_token"])); r.StatusCode != http.StatusBadRequest {
		t.Errorf("used twice: %d", r.StatusCode)
	}
	passes(http.StatusUnauthorized)
}

// Codes and sessions survive a reload.
func TestReloadKeepsCodesAndSessions(t *testing.T) {
	t.Parallel()
	keys := gatewaytest.StorageFolder(t)
	before := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), keys)
	code := before.Code()
	after := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), keys)
	after.Cookies = before.Cookies
	response := after.Post("/oauth2/token", gatewaytest.CodeForm(code))
	if response.StatusCode != http.StatusOK {
		t.Errorf("code after a reload: %d %s", response.StatusCode, gatewaytest.ReadBody(t, response))
	}
	again, err := after.Get("/oauth2/authorize?"+gatewaytest.DemoRequest().Encode(), "").Location()
	if err != nil || again.Query().Get("code") == "" {
		t.Errorf("session after a reload: %v %v", again, err)
	}
}

// A changed mark in a store indicates data loss, which is logged once.
func TestStoreLostItsData(t *testing.T) {
	server := newTestServer(t)
	g := newPeer(t, "a", gatewaytest.StorageFolder(t))
	emptied := func() bool { return hasLostData(t, g.app) }
	if emptied() {
		t.Fatal("at first")
	}
	if err := server.Gateway().Delete(t.Context(), store.IssuerKey); err != nil {
		t.Fatal(err)
	}
	await(t, "it is noticed", func() bool { g.app.stores.ClearRecoveredProblems(); return emptied() })
	if err := g.app.keys.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, answer := readyWith(t, g.Context)
	if status != 200 || len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], "the store lost its data at ") {
		t.Errorf("%d %+v", status, answer)
	}
	if lines := g.logged("store has lost its data"); len(lines) != 1 {
		t.Errorf("%d lines", len(lines))
	}
	if g.series()["caddy_fhir_store_problem cause=emptied store=test_shared"] != 1 {
		t.Error("not in the metrics")
	}
}

// /ready and a metric report problems of a local store.
func TestReadyReportsLocalStore(t *testing.T) {
	for name, tt := range map[string]struct {
		part, cause string
		harm        func(t *testing.T, app *App, folder string)
	}{
		"memory store full": {"memory", "memory full", func(t *testing.T, app *App, _ string) {
			memory := app.stores.Store.(*memory.Store)
			t.Cleanup(func() { // all gateways in the process share the store
				memory.SetMaxEntries(0)
				await(t, "it is well again", func() bool {
					app.stores.ClearRecoveredProblems()
					return app.stores.Health(context.Background())[1].Problem == nil
				})
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
			app, err := fhirbase.FindApp[*App](g.Context)
			if err != nil {
				t.Fatal(err)
			}
			if err := app.startStores(); err != nil {
				t.Fatal(err)
			}
			if err := app.keys.Refresh(t.Context()); err != nil { // creating keys may take longer than the timeout of /ready
				t.Fatal(err)
			}
			if status, answer := readyWith(t, g.Context); status != 200 {
				t.Fatalf("at first: %+v", answer)
			}
			tt.harm(t, app, folder)
			kind, cause, _ := strings.Cut(tt.cause, " ")
			await(t, "it is noticed", func() bool {
				app.stores.ClearRecoveredProblems()
				status, answer := readyWith(t, g.Context)
				return status == 503 && answer.Parts[tt.part] == cause && len(answer.Problems) == 1
			})
			if g.series()["caddy_fhir_store_problem cause="+cause+" store="+kind] != 1 {
				t.Error("not in the metrics")
			}
		})
	}
}

// If a store file is missing at the start, data loss is reported if keys exist. On the first start, no keys exist.
func TestStoreIsLostAtStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "fhir", "localhost-8443.db")
	for _, lost := range []bool{false, true} {
		g := newGatewayAt(t, gatewaytest.ExampleText(t, "", ""), folder)
		app, err := fhirbase.FindApp[*App](g.Context)
		if err != nil {
			t.Fatal(err)
		}
		if err := app.startStores(); err != nil {
			t.Fatal(err)
		}
		if got := hasLostData(t, app); got != lost {
			t.Errorf("lost: %t, want %t", got, lost)
		}
		g.Token()
		_ = app.stores.Durable.(*file.Store).Cleanup() // as when the process exits
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// hasLostData reports whether data loss was detected in one of an app's stores.
func hasLostData(t *testing.T, app *App) bool {
	return slices.ContainsFunc(app.stores.Health(t.Context()), func(h stores.Health) bool {
		return slices.ContainsFunc(h.Warnings, func(w string) bool { return strings.HasPrefix(w, "the store lost its data") })
	})
}

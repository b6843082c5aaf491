package stores_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	_ "github.com/caddy-fhir/caddy-fhir/caddymodule" // registers the fhir app
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store/storetest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func TestMain(m *testing.M) { os.Exit(gatewaytest.Main(m)) }

func init() {
	caddy.RegisterModule(new(externalStore))
	caddy.RegisterModule(new(externalSharedStore))
}

// externalStore is an external store for a single gateway: a [store.Store] that is a [Plugin] and implements the optional
// interfaces that it needs.
type externalStore struct {
	// The maximum number of entries. Default: 1000.
	MaxEntries int `json:"max_entries,omitempty"`

	*store.Memory `json:"-"`

	started bool
}

func (*externalStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.lone", New: func() caddy.Module { return new(externalStore) }}
}

func (l *externalStore) Provision(caddy.Context) error {
	l.Memory = store.NewMemory(l.MaxEntries, 0, store.RevocationKinds...)
	return nil
}

// UnmarshalCaddyfile parses the store's options.
func (l *externalStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the store's name
	for d.NextBlock(1) {
		var number string
		if d.Val() != "max_entries" || !d.Args(&number) {
			return d.Errf("unrecognized option: %s", d.Val())
		}
		var err error
		if l.MaxEntries, err = strconv.Atoi(number); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// A Caddyfile can configure an external store and its options.
func TestExternalStoreInCaddyfile(t *testing.T) {
	t.Parallel()
	for store, want := range map[string]string{
		"lone": `{"store":"lone"}`, "lone {\n\t\t\tmax_entries 7\n\t\t}": `{"max_entries":7,"store":"lone"}`,
	} {
		var app struct {
			Store json.RawMessage `json:"store"`
		}
		if err := json.Unmarshal(gatewaytest.Adapt(t, gatewaytest.AppCaddyfile("store "+store)).AppsRaw["fhir"], &app); err != nil || string(app.Store) != want {
			t.Errorf("%s: %s, %v", store, app.Store, err)
		}
	}
}

func (l *externalStore) Start(*slog.Logger) error { l.started = true; return nil }

func (*externalStore) VolatilityReason() string { return "lone is in memory" }

var (
	_ stores.Plugin        = (*externalStore)(nil)
	_ stores.Starter       = (*externalStore)(nil)
	_ stores.VolatileStore = (*externalStore)(nil)
)

// externalSharedStore is an external store that several gateways can share.
type externalSharedStore struct {
	// The name of the test server. Required.
	Server string `json:"server,omitempty"`

	stores.Shared
}

var servers = map[string]*storetest.SharedMemory{"one": storetest.NewSharedMemory(stores.SubscribedKinds()...)}

func (*externalSharedStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.common", New: func() caddy.Module { return new(externalSharedStore) }}
}

func (c *externalSharedStore) Provision(caddy.Context) error {
	server := servers[c.Server]
	if server == nil {
		return errors.New("no such server")
	}
	return c.Open("common", c.Server, func(*slog.Logger) (*stores.Remote, error) {
		gateway := server.Gateway()
		return &stores.Remote{
			SharedStore: gateway, Close: func() error { return nil }, SeparateStoreHint: "server",
			Check:            func(ctx context.Context) error { _, err := gateway.List(ctx, "none:"); return err },
			CountConnections: func() (open, used int) { return 1, 0 },
		}, nil
	})
}

var _ stores.Plugin = (*externalSharedStore)(nil)

// load loads stores in the same way as the fhir app.
func load(t *testing.T, settings map[string]any) *stores.Set {
	t.Helper()
	ctx, err := gatewaytest.Provision(t, new(caddy.Config))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := caddy.NewContext(ctx)
	t.Cleanup(cancel)
	raw := caddyconfig.JSON(settings, nil)
	set, err := stores.Load(ctx, stores.Config{Issuer: "https://x.example", StoreRaw: raw})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// An external store passes the tests that all stores must pass.
func TestExternalStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, maxEntries int) store.Store {
		l := &externalStore{MaxEntries: maxEntries}
		if err := l.Provision(caddy.Context{}); err != nil {
			t.Fatal(err)
		}
		return l
	})
}

// An external store is loaded by its module ID, is started, and is treated as volatile.
func TestExternalStoreIsStarted(t *testing.T) {
	t.Parallel()
	set := load(t, map[string]any{"store": "lone"})
	if err := set.Start(t.Context(), slog.New(slog.DiscardHandler), "https://x.example", 0); err != nil {
		t.Fatal(err)
	}
	if l, ok := set.Store.(*externalStore); !ok || !l.started {
		t.Errorf("%T is not started", set.Store)
	}
	if !errors.Is(set.CheckDurability(), stores.ErrVolatile) {
		t.Error("it is taken for one that keeps what it holds")
	}
	for _, h := range set.Health(t.Context()) {
		if h.Problem != nil {
			t.Errorf("%s: %v", h.Part, h.Problem)
		}
	}
}

// Two gateways can use an external shared store and receive each other's changes.
func TestExternalSharedStore(t *testing.T) {
	t.Parallel()
	set := load(t, map[string]any{"store": "common", "server": "one"})
	if err := set.Start(t.Context(), slog.New(slog.DiscardHandler), "https://x.example", 0); err != nil {
		t.Fatal(err)
	}
	other := servers["one"].Gateway()
	if err := set.Store.Put(t.Context(), "code:1", []byte("here"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, err := other.Get(t.Context(), "code:1"); err != nil || string(got) != "here" {
		t.Errorf("at the other gateway: %q, %v", got, err)
	}
	if set.Status().Name != "common" || set.Status().Lag == nil {
		t.Errorf("%+v", set.Status())
	}
}

// A complete gateway, including sign-in, works with external stores.
func TestGatewayWithExternalStores(t *testing.T) {
	t.Parallel()
	for _, settings := range []string{`{"store":"lone"}`, `{"store":"common","server":"one"}`} {
		config := gatewaytest.Adapt(t, "{\n\tauto_https disable_redirects\n\tskip_install_trust\n\tfhir {\n\t\tissuer https://localhost:8443\n\t}\n}\n\nhttps://localhost:8443 {\n\tfhir_authorize\n}\n")
		var app map[string]any
		if err := json.Unmarshal(config.AppsRaw["fhir"], &app); err != nil {
			t.Fatal(err)
		}
		app["store"] = json.RawMessage(settings)
		config.AppsRaw["fhir"] = caddyconfig.JSON(app, nil)
		config.StorageRaw = caddyconfig.JSON(map[string]string{"module": "file_system", "root": t.TempDir()}, nil)
		g, err := gatewaytest.Serve(t, config)
		if err != nil {
			t.Fatal(err)
		}
		if r := g.Get("/oauth2/account", ""); r.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s: %d", settings, r.StatusCode)
		}
		if r := g.Get("/.well-known/jwks.json", ""); r.StatusCode != http.StatusOK || !strings.Contains(gatewaytest.ReadBody(t, r), "ES256") {
			t.Errorf("%s: keys: %d", settings, r.StatusCode)
		}
	}
}

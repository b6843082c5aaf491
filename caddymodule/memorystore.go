package caddymodule

import (
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func init() { caddy.RegisterModule(new(MemoryStore)) }

// memoryStores keeps the store over reloads, because codes and revocations must outlive the configuration.
var memoryStores = caddy.NewUsagePool()

// memoryStoreKey is the same for all configurations: entries are checked against the current one when they are used.
const memoryStoreKey = "fhir.stores.memory"

// MemoryStore keeps codes and revocations in the memory of this process. They survive a reload, but not a restart.
type MemoryStore struct {
	// The maximum number of entries; more are refused. A code flow takes two entries of some 500 bytes each. Default:
	// 100000.
	MaxEntries int `json:"max_entries,omitempty"`

	*store.Memory `json:"-"`

	watched *Watch
}

type pooledStore struct {
	*store.Memory
	watch *Watch
}

func newPooledStore(maxEntries int) pooledStore {
	m := store.NewMemory(maxEntries, time.Minute, authorize.EndingKinds...)
	return pooledStore{m, newLocalWatch("memory", m)}
}

func (p pooledStore) Destruct() error {
	p.watch.stop()
	return nil
}

// Watch implements [Watched].
func (m *MemoryStore) Watch() *Watch { return m.watched }

// Volatile implements [Volatile].
func (*MemoryStore) Volatile() string {
	return "durable_store memory is the memory of this process: sessions and refresh tokens end with it"
}

// CaddyModule returns the Caddy module information.
func (*MemoryStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.memory", New: func() caddy.Module { return new(MemoryStore) }}
}

// Provision takes the store over from the previous configuration, if there is one.
func (m *MemoryStore) Provision(caddy.Context) error {
	pooled, _, err := memoryStores.LoadOrNew(memoryStoreKey, func() (caddy.Destructor, error) {
		return newPooledStore(m.MaxEntries), nil
	})
	if err != nil {
		return err
	}
	m.Memory, m.watched = pooled.(pooledStore).Memory, pooled.(pooledStore).watch
	return nil
}

// Start sets the bound. Until the configuration has started, the store belongs to the previous one.
func (m *MemoryStore) Start(*slog.Logger) error {
	m.SetMaxEntries(m.MaxEntries)
	return nil
}

// Cleanup releases the store, if Provision got that far.
func (m *MemoryStore) Cleanup() error {
	if m.Memory == nil {
		return nil
	}
	_, err := memoryStores.Delete(memoryStoreKey)
	return err
}

// UnmarshalCaddyfile sets up the store from Caddyfile tokens. Syntax:
//
//	store memory {
//		max_entries <number>
//	}
func (m *MemoryStore) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return parseDirective(d, subdirectives{"max_entries": number(&m.MaxEntries)})
}

var (
	_ store.Store           = (*MemoryStore)(nil)
	_ caddy.Provisioner     = (*MemoryStore)(nil)
	_ caddy.CleanerUpper    = (*MemoryStore)(nil)
	_ caddyfile.Unmarshaler = (*MemoryStore)(nil)
	_ Starter               = (*MemoryStore)(nil)
	_ Watched               = (*MemoryStore)(nil)
	_ Volatile              = (*MemoryStore)(nil)
)

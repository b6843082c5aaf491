// Package memory implements the module fhir.stores.memory, which stores codes and revocations in memory.
package memory

import (
	"log/slog"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

func init() { caddy.RegisterModule(new(Store)) }

// memoryStores contains the store, which survives reloads, because codes and revocations must outlive the configuration.
var memoryStores = caddy.NewUsagePool()

// memoryStoreKey is the key in memoryStores that all configurations share. Entries are checked against the current
// configuration when they are used.
const memoryStoreKey = "fhir.stores.memory"

// Store stores codes and revocations in the memory of this process. They survive reloads but not a restart.
type Store struct {
	// The maximum number of entries; others are rejected. A code flow uses two entries of about 500 bytes each. Default:
	// 100000.
	MaxEntries int `json:"max_entries,omitempty"`

	*store.Memory `json:"-"`

	monitor *stores.HealthMonitor
}

type pooledStore struct {
	*store.Memory
	monitor *stores.HealthMonitor
}

func newPooledStore(maxEntries int) pooledStore {
	m := store.NewMemory(maxEntries, time.Minute, store.RevocationKinds...)
	return pooledStore{m, stores.NewLocalMonitor("memory", m)}
}

func (p pooledStore) Destruct() error {
	p.monitor.Stop()
	return nil
}

// Monitor implements [stores.MonitorProvider].
func (m *Store) Monitor() *stores.HealthMonitor { return m.monitor }

// VolatilityReason implements [stores.VolatileStore].
func (*Store) VolatilityReason() string {
	return "store memory is not persistent: sessions and refresh tokens are lost on a restart"
}

// CaddyModule implements [caddy.Module].
func (*Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.memory", New: func() caddy.Module { return new(Store) }}
}

// Provision creates the store or reuses that of the previous configuration.
func (m *Store) Provision(caddy.Context) error {
	pooled, _, err := memoryStores.LoadOrNew(memoryStoreKey, func() (caddy.Destructor, error) {
		return newPooledStore(m.MaxEntries), nil
	})
	if err != nil {
		return err
	}
	m.Memory, m.monitor = pooled.(pooledStore).Memory, pooled.(pooledStore).monitor
	return nil
}

// Start sets the maximum number of entries. Before Start, the previous configuration determines it.
func (m *Store) Start(*slog.Logger) error {
	m.SetMaxEntries(m.MaxEntries)
	return nil
}

// Cleanup releases the store if Provision was successful.
func (m *Store) Cleanup() error {
	if m.Memory == nil {
		return nil
	}
	_, err := memoryStores.Delete(memoryStoreKey)
	return err
}

// UnmarshalCaddyfile parses the store's options. Syntax:
//
//	store memory {
//		max_entries <number>
//	}
func (m *Store) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return option.ParseDirective(d, option.Block{"max_entries": option.Number(&m.MaxEntries)})
}

var (
	_ store.Store            = (*Store)(nil)
	_ caddy.Provisioner      = (*Store)(nil)
	_ caddy.CleanerUpper     = (*Store)(nil)
	_ caddyfile.Unmarshaler  = (*Store)(nil)
	_ stores.Starter         = (*Store)(nil)
	_ stores.MonitorProvider = (*Store)(nil)
	_ stores.VolatileStore   = (*Store)(nil)
)

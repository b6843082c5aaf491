package caddymodule

import (
	"encoding/json"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

func init() { caddy.RegisterModule(new(MemoryStore)) }

// memoryStores keeps the store over reloads: codes and sessions that are in
// flight must outlive the configuration they were made under.
var memoryStores = caddy.NewUsagePool()

// memoryStoreKey is one for all configurations, because nothing a configuration
// says makes what is stored invalid: it is checked against the configuration of
// the moment when it is used.
const memoryStoreKey = "fhir.stores.memory"

// MemoryStore keeps codes and revocations in the memory of this
// process. They survive a reload of the configuration, not a restart.
type MemoryStore struct {
	// How many entries it holds at most; what comes beyond is refused. A
	// code flow takes two entries, each some 500 bytes. Default: 100000.
	MaxEntries int `json:"max_entries,omitempty"`

	store.Store `json:"-"`
	pooled      *store.Memory
}

type pooledStore struct{ *store.Memory }

// Destruct implements caddy.Destructor.
func (pooledStore) Destruct() error { return nil }

// CaddyModule returns the Caddy module information.
func (*MemoryStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.stores.memory", New: func() caddy.Module { return new(MemoryStore) }}
}

// Provision takes the store over from the configuration before, if there is one.
func (m *MemoryStore) Provision(caddy.Context) error {
	pooled, _, err := memoryStores.LoadOrNew(memoryStoreKey, func() (caddy.Destructor, error) {
		return pooledStore{store.NewMemory(m.MaxEntries, time.Minute)}, nil
	})
	if err != nil {
		return err
	}
	m.pooled = pooled.(pooledStore).Memory
	m.Store = m.pooled
	return nil
}

// start sets the bound. Until its configuration starts, and for good if it does
// not, the store is still that of the configuration before.
func (m *MemoryStore) start() { m.pooled.SetMaxEntries(m.MaxEntries) }

// Cleanup lets the store go, if Provision got as far as taking it.
func (m *MemoryStore) Cleanup() error {
	if m.Store == nil {
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

// parseStore reads the name of a module in fhir.stores, and leaves the rest of
// the block to it.
func parseStore(to *json.RawMessage) setter {
	return func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		if _, err := caddy.GetModule(storeNamespace + "." + name); err != nil {
			return d.Errf("module not registered: %s.%s%s", storeNamespace, name, didYouMean(name, storeNames()))
		}
		module, err := caddyfile.UnmarshalModule(d, storeNamespace+"."+name)
		if err != nil {
			return err
		}
		*to = caddyconfig.JSONModuleObject(module, "store", name, nil)
		return nil
	}
}

// storeNamespace is that of the modules that are stores.
const storeNamespace = "fhir.stores"

func storeNames() (names []string) {
	for _, module := range caddy.GetModules(storeNamespace) {
		names = append(names, module.ID.Name())
	}
	return names
}

var (
	_ store.Store           = (*MemoryStore)(nil)
	_ caddy.Provisioner     = (*MemoryStore)(nil)
	_ caddy.CleanerUpper    = (*MemoryStore)(nil)
	_ caddyfile.Unmarshaler = (*MemoryStore)(nil)
)

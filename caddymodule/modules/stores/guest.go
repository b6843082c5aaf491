package stores

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Plugin is a module in the namespace fhir.stores. The store that its Provision creates, or reuses from the previous
// configuration, is used until its Cleanup.
//
// There are two kinds. A store for a single gateway is the module itself: a [store.Store] that implements [Starter], [Stopper],
// [IssuerChecker], [MonitorProvider], [FileStore], [VolatileStore] and [CopySource] as needed. A store that several gateways
// share embeds [Shared] and, in Provision, passes the function that opens it to [Shared.Open].
type Plugin any

// A Starter is a plugin that is opened when its configuration becomes active.
type Starter interface {
	// Start opens the store. Before Start, only the previous configuration may use it.
	Start(logger *slog.Logger) error
}

// A Stopper is a plugin that prepares for the exit of the process.
type Stopper interface {
	// PrepareShutdown is called before Caddy waits for pending requests, which still use the store.
	PrepareShutdown()
}

// An IssuerChecker is a plugin that, as the durable store, checks to which issuer its state belongs.
type IssuerChecker interface {
	// CheckIssuer returns an error if the store contains another issuer's state. isNew reports whether the store was empty.
	CheckIssuer(ctx context.Context, issuer string) (isNew bool, err error)
}

// A MonitorProvider is a plugin with a store and a monitor that survive reloads. For other plugins, each configuration has a
// separate monitor.
type MonitorProvider interface {
	// Monitor returns the store's monitor.
	Monitor() *HealthMonitor
}

// A FileStore is a plugin that stores its data in a file.
type FileStore interface {
	// ResolvePath determines the path of the file, given the default path. It is called before other methods.
	ResolvePath(defaultPath string) error

	// Check verifies the file without creating or modifying it. It waits for another process that uses the file for at most the
	// duration wait.
	Check(wait time.Duration) error
}

// A VolatileStore is a plugin that loses its state on restart.
type VolatileStore interface {
	// VolatilityReason returns the consequence of using the plugin as a durable store, for a warning.
	VolatilityReason() string
}

// A CopySource is a plugin that must be opened for `fhir-store copy`. Other plugins are copied without being opened first.
type CopySource interface {
	// OpenForCopy opens the store for a process that uses it exclusively. If another process uses the store, OpenForCopy waits
	// for at most the duration wait. If create is true, it creates a missing store.
	OpenForCopy(create bool, wait time.Duration) (*Copy, error)
}

// A Copy is a store that entries are copied from or to.
type Copy struct {
	store.CopyableStore

	// Name is the name of the store in messages.
	Name string

	// Identity distinguishes the store from others. It contains no secret.
	Identity string

	// Batch is the number of entries that are stored in one step. Default: the limit for remote stores.
	Batch int
}

// ErrVolatile is returned for a store that cannot be copied because it is in memory.
var ErrVolatile = errors.New("the durable store is in a gateway's memory and cannot be copied")

// volatilityReason returns why a store loses its state on restart. is is false if the store is durable.
func volatilityReason(s store.Store) (why string, is bool) {
	v, is := s.(VolatileStore)
	if !is {
		return "", false
	}
	return v.VolatilityReason(), true
}

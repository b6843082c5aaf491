package stores

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Plugin is a module in the namespace fhir.stores. The store that its Provision creates, or takes over from the previous
// configuration, is used until its Cleanup.
//
// There are two kinds. A store for a single gateway is the module itself: a [store.Store] that implements [Starter], [Stopper],
// [IssuerChecker], [WatchProvider], [FileStore], [VolatileStore] and [CopySource] as needed. A store that several gateways share embeds [Shared], and
// passes the function that opens it to [Shared.Open] in Provision.
type Plugin any

// A Starter is a guest that is opened when its configuration becomes active.
type Starter interface {
	// Start opens the store. Until then, it belongs to the previous configuration.
	Start(logger *slog.Logger) error
}

// A Stopper is a guest that prepares for the end of the process.
type Stopper interface {
	// PrepareShutdown is called before Caddy waits for the last requests, which still use the store.
	PrepareShutdown()
}

// An IssuerChecker is a plugin that, as the durable store, checks which issuer its state belongs to.
type IssuerChecker interface {
	// CheckIssuer rejects a store with another issuer's state. It reports whether the store was empty before.
	CheckIssuer(ctx context.Context, issuer string) (isNew bool, err error)
}

// A WatchProvider is a plugin with a watch that outlives a configuration, as its store does. For other plugins, each
// configuration has one.
type WatchProvider interface {
	// Watch returns the store's watch.
	Watch() *Watch
}

// A FileStore is a plugin that keeps its store in a file.
type FileStore interface {
	// ResolvePath is called before other methods, with the default path of the file.
	ResolvePath(defaultPath string) error
}

// A VolatileStore is a plugin that loses its state on a restart.
type VolatileStore interface {
	// VolatilityReason returns the consequence for a durable store.
	VolatilityReason() string
}

// A CopySource is a plugin that is opened for `fhir-store copy`. Other plugins are copied without being opened first.
type CopySource interface {
	// OpenForCopy opens the store for a process that uses it alone. It waits at most wait for another process that uses the
	// store, and creates a missing store only if create is true.
	OpenForCopy(create bool, wait time.Duration) (*Copy, error)
}

// A Copy is a store to copy from or to.
type Copy struct {
	store.CopyableStore

	// Name is the store's name for messages.
	Name string

	// Identity distinguishes the store from others, and contains no secret.
	Identity string

	// Batch is the number of entries to store in one step. Default: the limit of a server.
	Batch int
}

// ErrVolatile means that a store cannot be copied.
var ErrVolatile = errors.New("the durable store is in a gateway's memory and cannot be copied")

// volatilityReason reports whether a store loses its state on a restart.
func volatilityReason(s store.Store) (why string, is bool) {
	v, is := s.(VolatileStore)
	if !is {
		return "", false
	}
	return v.VolatilityReason(), true
}

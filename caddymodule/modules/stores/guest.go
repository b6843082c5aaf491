package stores

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// A Guest is a module of the namespace fhir.stores. The store that its Provision makes, or takes over from the previous
// configuration, is used until its Cleanup.
//
// There are two kinds. A store that one gateway uses alone is the module itself: it is a [store.Store], and implements
// those of [Starter], [Stopper], [Claimer], [Watched], [Located], [Volatile] and [Copied] that it has a use for. A store that
// several gateways share embeds [Shared], and names in Provision how to open it.
type Guest any

// A Starter is a guest that is opened when its configuration takes over.
type Starter interface {
	// Start opens the store. Until then, it belongs to the previous configuration.
	Start(logger *slog.Logger) error
}

// A Stopper is a guest that prepares for the end of the process.
type Stopper interface {
	// Stopping is called before Caddy waits for the last requests, which still use the store.
	Stopping()
}

// A Claimer is a guest that checks, as the durable store, whose state it holds.
type Claimer interface {
	// Claim refuses a store with another issuer's state. It reports whether the store held nothing before.
	Claim(ctx context.Context, issuer string) (isNew bool, err error)
}

// A Watched guest has a watch that outlives a configuration, as its store does. For others, each configuration has one.
type Watched interface {
	// Watch returns the store's watch.
	Watch() *Watch
}

// A Located guest keeps its store in a file.
type Located interface {
	// Locate is called before all else, with where the file lies unless an option says so.
	Locate(defaultPath string) error
}

// A Volatile guest keeps nothing over a restart.
type Volatile interface {
	// Volatile says what that means for a durable store.
	Volatile() string
}

// A Copied guest is opened for `fhir-store copy`. Others are copied from and to as they are.
type Copied interface {
	// OpenCopy opens the store for a process that uses it alone. It waits no longer than wait for another that still does, and
	// makes a store that is not there only if it may.
	OpenCopy(mayMake bool, wait time.Duration) (*Copy, error)
}

// A Copy is a store to copy from or to.
type Copy struct {
	store.Copyable

	// Name is the store's name for people.
	Name string

	// Identity tells it from others, and reveals no secret.
	Identity string

	// Batch is how many entries to store in one step. Default: as many as a server takes.
	Batch int
}

// ErrVolatile says that a store cannot be copied.
var ErrVolatile = errors.New("its durable store is in the memory of a gateway, and ends with it")

// isVolatile reports whether a store keeps nothing over a restart.
func isVolatile(s store.Store) (why string, is bool) {
	v, is := s.(Volatile)
	if !is {
		return "", false
	}
	return v.Volatile(), true
}

package registration

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// shelf is where registered clients are, by client_id. A missing one is fs.ErrNotExist.
type shelf interface {
	// load returns a client, as it is or was shortly before.
	load(ctx context.Context, id string) ([]byte, error)

	// add stores a new client, or returns errTooMany if there are as many as may be.
	add(ctx context.Context, id string, value []byte, most int) error

	// change replaces a client by what alter makes of it. Of several at once, each sees what
	// the one before has stored.
	change(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error

	// remove deletes a client, which need not exist.
	remove(ctx context.Context, id string) error

	// ids returns the client_ids of all clients.
	ids(ctx context.Context) ([]string, error)

	// location names the place of a client to the operator.
	location(id string) string
}

var errTooMany = &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "as many clients as may be are registered"}

// folder is a shelf in Caddy's storage. Gateways that share it may exceed the limit by one
// client each.
type folder struct {
	storage Storage
	path    string
	mu      sync.Mutex    // held while a client is counted, changed or removed
	cached  *store.Memory // copies of what is stored
}

// cacheTTL is how long a copy is used, and thus a client deleted at another gateway stays
// valid here.
const cacheTTL = time.Minute

// Storage keeps clients that registered themselves. It is part of certmagic's Storage. Load
// and List return fs.ErrNotExist for a missing key.
type Storage interface {
	Load(ctx context.Context, key string) ([]byte, error)                             // returns a value
	Store(ctx context.Context, key string, value []byte) error                        // stores or replaces it
	Delete(ctx context.Context, key string) error                                     // removes it
	List(ctx context.Context, path string, recursive bool) (keys []string, err error) // below a path
}

// DefaultMaxClients is the default limit of clients that register themselves.
const DefaultMaxClients = 1000

func newFolder(storage Storage, path string) *folder {
	return &folder{storage: storage, path: path, cached: store.NewMemory(DefaultMaxClients, 0)}
}

func (f *folder) key(id string) string { return f.path + "/" + id + ".json" }

func (f *folder) location(id string) string { return f.key(id) + " in storage" }

func (f *folder) load(ctx context.Context, id string) ([]byte, error) {
	value, err := f.cached.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		if value, err = f.storage.Load(ctx, f.key(id)); err == nil {
			_ = f.cached.Put(ctx, id, value, cacheTTL) // the cache may be full
		}
	}
	return value, err
}

func (f *folder) add(ctx context.Context, id string, value []byte, most int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	others, err := f.ids(ctx)
	switch {
	case err != nil:
		return err
	case len(others) >= most:
		return errTooMany
	}
	return f.storage.Store(ctx, f.key(id), value)
}

func (f *folder) ids(ctx context.Context) ([]string, error) {
	files, err := f.storage.List(ctx, f.path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".json")
	}
	return files, err
}

// change alters a client as stored, not as cached: another gateway may have changed or
// removed it.
func (f *folder) change(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	value, err := f.storage.Load(ctx, f.key(id))
	if err == nil {
		value, err = alter(value)
	}
	if err == nil {
		err = f.storage.Store(ctx, f.key(id), value)
	}
	if err != nil {
		return err
	}
	return f.cached.Delete(ctx, id)
}

func (f *folder) remove(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.storage.Delete(ctx, f.key(id)); err != nil {
		return err
	}
	return f.cached.Delete(ctx, id)
}

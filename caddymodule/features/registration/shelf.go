package registration

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// clientStore stores registered clients by client_id. Its methods return fs.ErrNotExist if a client does not exist.
type clientStore interface {
	// load returns a client, possibly from a cache.
	load(ctx context.Context, id string) ([]byte, error)

	// add stores a new client. If there are already maxClients clients, it returns errClientLimit.
	add(ctx context.Context, id string, value []byte, maxClients int) error

	// update replaces a client with the result of alter. Concurrent changes are serialized.
	update(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error

	// remove deletes a client. It returns no error if the client does not exist.
	remove(ctx context.Context, id string) error

	// ids returns the client_ids of all clients.
	ids(ctx context.Context) ([]string, error)

	// location returns where a client is stored, for messages to the operator.
	location(id string) string
}

var errClientLimit = &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "the maximum number of registered clients is reached"}

// caddyStore is a clientStore in Caddy's storage. Each gateway that shares the storage may exceed the limit by one client.
type caddyStore struct {
	storage Storage
	path    string
	mu      sync.Mutex    // guards counting, changing and removing clients
	cache   *store.Memory // copies of stored clients
}

// cacheTTL is the lifetime of a cached client. It is also the maximum delay until a deletion at another gateway takes effect at
// this gateway.
const cacheTTL = time.Minute

// Storage stores registered clients. It is a subset of certmagic.Storage. Load and List return fs.ErrNotExist if a key does not
// exist.
type Storage interface {
	Load(ctx context.Context, key string) ([]byte, error)                             // returns a value
	Store(ctx context.Context, key string, value []byte) error                        // creates or replaces a value
	Delete(ctx context.Context, key string) error                                     // deletes a value
	List(ctx context.Context, path string, recursive bool) (keys []string, err error) // lists the keys below a path
}

// DefaultMaxClients is the default limit of registered clients.
const DefaultMaxClients = 1000

func newCaddyStore(storage Storage, path string) *caddyStore {
	return &caddyStore{storage: storage, path: path, cache: store.NewMemory(DefaultMaxClients, 0)}
}

func (f *caddyStore) key(id string) string { return f.path + "/" + id + ".json" }

func (f *caddyStore) location(id string) string { return f.key(id) + " in Caddy's storage" }

func (f *caddyStore) load(ctx context.Context, id string) ([]byte, error) {
	value, err := f.cache.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		if value, err = f.storage.Load(ctx, f.key(id)); err == nil {
			_ = f.cache.Put(ctx, id, value, cacheTTL) // ignore errors: the cache may be full
		}
	}
	return value, err
}

func (f *caddyStore) add(ctx context.Context, id string, value []byte, maxClients int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	existing, err := f.ids(ctx)
	switch {
	case err != nil:
		return err
	case len(existing) >= maxClients:
		return errClientLimit
	}
	return f.storage.Store(ctx, f.key(id), value)
}

func (f *caddyStore) ids(ctx context.Context) ([]string, error) {
	files, err := f.storage.List(ctx, f.path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for i, file := range files {
		files[i] = strings.TrimSuffix(path.Base(file), ".json")
	}
	return files, err
}

// update alters the stored client instead of the cached copy, because another gateway may have changed or removed the client.
func (f *caddyStore) update(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error {
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
	return f.cache.Delete(ctx, id)
}

func (f *caddyStore) remove(ctx context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.storage.Delete(ctx, f.key(id)); err != nil {
		return err
	}
	return f.cache.Delete(ctx, id)
}

// sharedStore is a clientStore in a store that gateways share. The index of clients changes atomically with the clients, so the
// limit is exact and List is not needed. Clients contain only digests of random secrets, so they are not sealed.
type sharedStore struct {
	store    store.Store
	name     string
	legacy   *caddyStore // storage of the clients that registered before the store was used
	migrated atomic.Bool
}

const (
	clientKind = "client"  // kind of client keys
	indexKind  = "clients" // kind of the index and of the mark that the migration is complete
)

func newSharedStore(s store.Store, legacy *caddyStore) *sharedStore {
	return &sharedStore{store: s, name: path.Base(legacy.path), legacy: legacy}
}

func (s *sharedStore) key(id string) string { return clientKind + ":" + s.name + "." + id }

func (s *sharedStore) indexKey() string { return indexKind + ":" + s.name }

func (s *sharedStore) migratedKey() string { return indexKind + ":" + s.name + ".moved" }

func (s *sharedStore) location(id string) string { return s.key(id) + " in the durable store" }

func (s *sharedStore) load(ctx context.Context, id string) ([]byte, error) {
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	value, err := s.store.Get(ctx, s.key(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fs.ErrNotExist
	}
	return value, err
}

func (s *sharedStore) ids(ctx context.Context) ([]string, error) {
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	ids, _, err := s.readIndex(ctx)
	return ids, err
}

// readIndex returns the client_ids in the index, and the stored index; nil if there is none.
func (s *sharedStore) readIndex(ctx context.Context) (ids []string, entry []byte, err error) {
	get := &store.Call{Op: store.Get, Key: s.indexKey()}
	if err = s.store.Do(ctx, get); err == nil && get.Value != nil {
		err = json.Unmarshal(get.Value, &ids)
	}
	return ids, get.Value, err
}

// replaceIndex returns the call that replaces the stored index entry by ids.
func (s *sharedStore) replaceIndex(ids []string, entry []byte) (*store.Call, error) {
	value, err := json.Marshal(ids)
	return store.ReplaceCall(s.indexKey(), entry, value, store.Forever), err
}

func (s *sharedStore) add(ctx context.Context, id string, value []byte, maxClients int) error {
	return s.retry(ctx, func() error {
		ids, entry, err := s.readIndex(ctx)
		if err != nil {
			return err
		}
		if len(ids) >= maxClients {
			return errClientLimit
		}
		indexCall, err := s.replaceIndex(append(ids, id), entry)
		if err != nil {
			return err
		}
		return s.store.Do(ctx, indexCall, &store.Call{Op: store.Add, Key: s.key(id), Value: value, TTL: store.Forever})
	})
}

func (s *sharedStore) update(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error {
	return s.retry(ctx, func() error {
		get := &store.Call{Op: store.Get, Key: s.key(id)} // not a cached copy
		switch err := s.store.Do(ctx, get); {
		case err != nil:
			return err
		case get.Value == nil:
			return fs.ErrNotExist
		}
		updated, err := alter(get.Value)
		if err != nil {
			return err
		}
		return s.store.Swap(ctx, s.key(id), get.Value, updated, store.Forever)
	})
}

func (s *sharedStore) remove(ctx context.Context, id string) error {
	return s.retry(ctx, func() error {
		ids, entry, err := s.readIndex(ctx)
		if err != nil {
			return err
		}
		calls := []*store.Call{{Op: store.Delete, Key: s.key(id)}}
		if slices.Contains(ids, id) {
			indexCall, err := s.replaceIndex(slices.DeleteFunc(ids, func(other string) bool { return other == id }), entry)
			if err != nil {
				return err
			}
			calls = append(calls, indexCall)
		}
		return s.store.Do(ctx, calls...)
	})
}

func (s *sharedStore) retry(ctx context.Context, change func() error) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	return store.Retry(ctx, change)
}

// migrate copies the clients of legacy to the store, unless a gateway with such clients has already done this.
func (s *sharedStore) migrate(ctx context.Context) error {
	if s.migrated.Load() {
		return nil
	}
	err := store.Retry(ctx, func() error {
		marker := &store.Call{Op: store.Get, Key: s.migratedKey()}
		if err := s.store.Do(ctx, marker); err != nil || marker.Value != nil {
			return err
		}
		return s.copyLegacy(ctx)
	})
	s.migrated.Store(err == nil)
	return err
}

// copyLegacy copies the clients of legacy and, in the same step, sets the mark that the migration is complete.
func (s *sharedStore) copyLegacy(ctx context.Context) error {
	legacyIDs, err := s.legacy.ids(ctx)
	if err != nil || len(legacyIDs) == 0 {
		return err
	}
	ids, entry, err := s.readIndex(ctx)
	if err != nil {
		return err
	}
	calls := []*store.Call{{Op: store.Add, Key: s.migratedKey(), Value: []byte("moved"), TTL: store.Forever}}
	for _, id := range legacyIDs {
		value, err := s.legacy.storage.Load(ctx, s.legacy.key(id))
		if err != nil {
			return err
		}
		ids = append(ids, id)
		calls = append(calls, &store.Call{Op: store.Add, Key: s.key(id), Value: value, TTL: store.Forever})
	}
	indexCall, err := s.replaceIndex(ids, entry)
	if err != nil {
		return err
	}
	return s.store.Do(ctx, append(calls, indexCall)...)
}

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

// shelf stores registered clients by client_id. Missing clients are fs.ErrNotExist.
type shelf interface {
	// load returns a client, possibly from a cache.
	load(ctx context.Context, id string) ([]byte, error)

	// add stores a new client. It returns errTooMany if there are most clients.
	add(ctx context.Context, id string, value []byte, most int) error

	// change replaces a client with the result of alter. Concurrent changes are serialized.
	change(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error

	// remove deletes a client. A missing client is not an error.
	remove(ctx context.Context, id string) error

	// ids returns the client_ids of all clients.
	ids(ctx context.Context) ([]string, error)

	// location returns the location of a client, for the operator.
	location(id string) string
}

var errTooMany = &oauth2.Error{Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable, Description: "as many clients as may be are registered"}

// folder is a shelf in Caddy's storage. Gateways that share it may each exceed the limit
// by one client.
type folder struct {
	storage Storage
	path    string
	mu      sync.Mutex    // guards counting, changing and removing clients
	cached  *store.Memory // copies of stored clients
}

// cacheTTL is the lifetime of a cached client, and so the delay until a deletion at
// another gateway takes effect at this gateway.
const cacheTTL = time.Minute

// Storage stores registered clients. It is part of certmagic's Storage. Load and List
// return fs.ErrNotExist for a missing key.
type Storage interface {
	Load(ctx context.Context, key string) ([]byte, error)                             // returns a value
	Store(ctx context.Context, key string, value []byte) error                        // creates or replaces a value
	Delete(ctx context.Context, key string) error                                     // deletes a value
	List(ctx context.Context, path string, recursive bool) (keys []string, err error) // lists the keys below a path
}

// DefaultMaxClients is the default limit of registered clients.
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

// change alters the stored client, not the cached copy: another gateway may have
// changed or removed the client.
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

// sharedShelf is a shelf in a store that gateways share. The index of clients changes
// atomically with the clients, so the limit is exact and List is not needed. Clients
// contain only digests of random secrets and are not sealed.
type sharedShelf struct {
	store   store.Store
	name    string
	earlier *folder // clients from before the store was used
	moved   atomic.Bool
}

const (
	clientKind = "client"  // kind of client keys
	indexKind  = "clients" // kind of the index key and of the key that marks the migration
)

func newSharedShelf(s store.Store, earlier *folder) *sharedShelf {
	return &sharedShelf{store: s, name: path.Base(earlier.path), earlier: earlier}
}

func (s *sharedShelf) key(id string) string { return clientKind + ":" + s.name + "." + id }

func (s *sharedShelf) indexKey() string { return indexKind + ":" + s.name }

func (s *sharedShelf) movedKey() string { return indexKind + ":" + s.name + ".moved" }

func (s *sharedShelf) location(id string) string { return s.key(id) + " in the durable store" }

func (s *sharedShelf) load(ctx context.Context, id string) ([]byte, error) {
	if err := s.move(ctx); err != nil {
		return nil, err
	}
	value, err := s.store.Get(ctx, s.key(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, fs.ErrNotExist
	}
	return value, err
}

func (s *sharedShelf) ids(ctx context.Context) ([]string, error) {
	if err := s.move(ctx); err != nil {
		return nil, err
	}
	ids, _, err := s.index(ctx)
	return ids, err
}

// index returns the client_ids and the index entry, nil if it is missing.
func (s *sharedShelf) index(ctx context.Context) (ids []string, entry []byte, err error) {
	get := &store.Call{Op: store.Get, Key: s.indexKey()}
	if err = s.store.Do(ctx, get); err == nil && get.Value != nil {
		err = json.Unmarshal(get.Value, &ids)
	}
	return ids, get.Value, err
}

// indexed returns the call that replaces the index.
func (s *sharedShelf) indexed(ids []string, entry []byte) (*store.Call, error) {
	value, err := json.Marshal(ids)
	return store.Replacing(s.indexKey(), entry, value, store.Forever), err
}

func (s *sharedShelf) add(ctx context.Context, id string, value []byte, most int) error {
	return s.retry(ctx, func() error {
		ids, entry, err := s.index(ctx)
		if err != nil {
			return err
		}
		if len(ids) >= most {
			return errTooMany
		}
		indexed, err := s.indexed(append(ids, id), entry)
		if err != nil {
			return err
		}
		return s.store.Do(ctx, indexed, &store.Call{Op: store.Add, Key: s.key(id), Value: value, TTL: store.Forever})
	})
}

func (s *sharedShelf) change(ctx context.Context, id string, alter func([]byte) ([]byte, error)) error {
	return s.retry(ctx, func() error {
		get := &store.Call{Op: store.Get, Key: s.key(id)} // Do bypasses the cache
		switch err := s.store.Do(ctx, get); {
		case err != nil:
			return err
		case get.Value == nil:
			return fs.ErrNotExist
		}
		altered, err := alter(get.Value)
		if err != nil {
			return err
		}
		return s.store.Swap(ctx, s.key(id), get.Value, altered, store.Forever)
	})
}

func (s *sharedShelf) remove(ctx context.Context, id string) error {
	return s.retry(ctx, func() error {
		ids, entry, err := s.index(ctx)
		if err != nil {
			return err
		}
		calls := []*store.Call{{Op: store.Delete, Key: s.key(id)}}
		if slices.Contains(ids, id) {
			indexed, err := s.indexed(slices.DeleteFunc(ids, func(other string) bool { return other == id }), entry)
			if err != nil {
				return err
			}
			calls = append(calls, indexed)
		}
		return s.store.Do(ctx, calls...)
	})
}

func (s *sharedShelf) retry(ctx context.Context, change func() error) error {
	if err := s.move(ctx); err != nil {
		return err
	}
	return store.Retry(ctx, change)
}

// move copies the clients of earlier, unless a gateway that had clients has already done it.
func (s *sharedShelf) move(ctx context.Context) error {
	if s.moved.Load() {
		return nil
	}
	err := store.Retry(ctx, func() error {
		mark := &store.Call{Op: store.Get, Key: s.movedKey()}
		if err := s.store.Do(ctx, mark); err != nil || mark.Value != nil {
			return err
		}
		return s.copy(ctx)
	})
	s.moved.Store(err == nil)
	return err
}

// copy copies the clients of earlier and sets the migration mark atomically.
func (s *sharedShelf) copy(ctx context.Context) error {
	earlier, err := s.earlier.ids(ctx)
	if err != nil || len(earlier) == 0 {
		return err
	}
	ids, entry, err := s.index(ctx)
	if err != nil {
		return err
	}
	calls := []*store.Call{{Op: store.Add, Key: s.movedKey(), Value: []byte("moved"), TTL: store.Forever}}
	for _, id := range earlier {
		value, err := s.earlier.storage.Load(ctx, s.earlier.key(id))
		if err != nil {
			return err
		}
		ids = append(ids, id)
		calls = append(calls, &store.Call{Op: store.Add, Key: s.key(id), Value: value, TTL: store.Forever})
	}
	indexed, err := s.indexed(ids, entry)
	if err != nil {
		return err
	}
	return s.store.Do(ctx, append(calls, indexed)...)
}

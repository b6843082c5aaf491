package registration

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"slices"
	"sync/atomic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// sharedShelf is a shelf in a store that gateways share. An index of all clients is changed
// in one step with them, so that their limit is exact, and no List is needed. Clients hold
// digests of random secrets alone, and are not sealed.
type sharedShelf struct {
	store   store.Store
	name    string
	earlier *folder // has clients from before the store was used
	moved   atomic.Bool
}

const (
	clientKind = "client"  // of the keys of clients
	indexKind  = "clients" // of the keys of the index, and of the mark of what was moved
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

// index returns the client_ids, and the entry that holds them; nil if there is none.
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
		get := &store.Call{Op: store.Get, Key: s.key(id)} // by Do, which asks the store itself
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

// move copies the clients of earlier, unless a gateway that had some has done so.
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

// copy copies the clients of earlier, and the mark that says so, in one step.
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

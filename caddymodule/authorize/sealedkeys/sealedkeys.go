// Package sealedkeys stores the keys of a keyring, sealed, in a shared store. Someone with access to the store can neither sign
// tokens nor unseal data.
package sealedkeys

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// entryKind is the prefix of the store keys.
const entryKind = "keyring"

// Storage is a [keyring.Storage] in a [store.Store]. It uses no locks, because a gateway could be suspended and lose a lock
// without noticing. Instead, an update replaces the value that it read, or is retried. If several gateways create the first
// value concurrently, all of them use the one that was stored first.
type Storage struct {
	Store store.Store        // store for the values
	Keys  keyring.SharedKeys // sealing keys, from [NewKeys]

	// LegacyStorage contains the values from before the keys were stored in Store. A value missing from Store is copied from
	// it. Default: none.
	LegacyStorage interface {
		Load(ctx context.Context, key string) ([]byte, error) // the error is fs.ErrNotExist for a missing value
	}

	mu     sync.Mutex
	latest map[string][]byte // values that this gateway read or stored last, by name
}

// Load implements [keyring.Storage]. If the store has lost a value, Load restores it.
func (s *Storage) Load(ctx context.Context, name string) ([]byte, error) {
	value, _, err := s.load(ctx, name)
	return value, err
}

// load also returns the value as stored.
func (s *Storage) load(ctx context.Context, name string) (value, sealed []byte, err error) {
	sealed, err = s.Store.Get(ctx, storeKey(name))
	if errors.Is(err, store.ErrNotFound) {
		if err = s.restore(ctx, name); err != nil {
			return nil, nil, err
		}
		sealed, err = s.Store.Get(ctx, storeKey(name))
	}
	if err != nil {
		return nil, nil, err
	}
	value, by, err := s.open(sealed, name)
	if err != nil {
		return nil, nil, err
	}
	if by > 0 { // sealed with a former key: sealed again, so that the operator can remove the key
		if err := s.Store.Swap(ctx, storeKey(name), sealed, s.seal(value, name), store.Forever); err != nil && !errors.Is(err, store.ErrChanged) {
			return nil, nil, err
		}
	}
	s.recordSeen(name, value)
	return value, sealed, nil
}

// restore stores the value that this gateway has in memory, or by default the one in LegacyStorage, unless another gateway has
// stored a value. If there is no value, the error is fs.ErrNotExist.
func (s *Storage) restore(ctx context.Context, name string) error {
	value := s.lastSeen(name)
	if value == nil {
		if s.LegacyStorage == nil {
			return fs.ErrNotExist
		}
		var err error
		if value, err = s.LegacyStorage.Load(ctx, name); err != nil {
			return err
		}
	}
	err := s.Store.Add(ctx, storeKey(name), s.seal(value, name), store.Forever)
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// Update implements [keyring.Storage].
func (s *Storage) Update(ctx context.Context, name string, renew func([]byte) ([]byte, error)) (renewed []byte, err error) {
	err = store.Retry(ctx, func() error {
		value, sealed, err := s.load(ctx, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if renewed, err = renew(value); err != nil || bytes.Equal(renewed, value) {
			return err
		}
		if err = s.replace(ctx, name, sealed, renewed); err == nil {
			s.recordSeen(name, renewed)
		}
		return err
	})
	return renewed, err
}

func (s *Storage) replace(ctx context.Context, name string, sealed, value []byte) error {
	if sealed == nil {
		return s.Store.Add(ctx, storeKey(name), s.seal(value, name), store.Forever)
	}
	return s.Store.Swap(ctx, storeKey(name), sealed, s.seal(value, name), store.Forever)
}

// IsAuthentic implements [keyring.Storage]. Without a sealing key, an attacker can remove values or restore older ones, but
// cannot create new ones.
func (*Storage) IsAuthentic() bool { return true }

// Location implements [keyring.Storage].
func (*Storage) Location(name string) string { return storeKey(name) + " in the durable store" }

func storeKey(name string) string { return entryKind + ":" + name }

func (s *Storage) recordSeen(name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil {
		s.latest = map[string][]byte{}
	}
	s.latest[name] = value
}

func (s *Storage) lastSeen(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest[name]
}

var _ keyring.Storage = (*Storage)(nil)

// NewKeys returns the keys for a [Storage].
func NewKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("signing keys", secrets...)
}

// formatVersion is the first part of a stored value: <version>.<keys sealed with AES-256-GCM, in base64url>.
const formatVersion = "1."

func (s *Storage) seal(value []byte, name string) []byte {
	return []byte(formatVersion + s.Keys.Seal(string(value), name))
}

// open returns the unsealed value and the index of the key that unsealed it.
func (s *Storage) open(sealed []byte, name string) (value []byte, by int, err error) {
	box, hasVersion := strings.CutPrefix(string(sealed), formatVersion)
	if !hasVersion {
		return nil, 0, errors.New("stored value is damaged or from another version of this program")
	}
	text, by, err := s.Keys.UnsealAnyAge(box, name)
	if err != nil {
		return nil, 0, errors.New("stored value is damaged or sealed with another store_key: append the previous store_key after the current one")
	}
	return []byte(text), by, nil
}

package keyring

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Storage stores the keys of a [Keyring].
type Storage interface {
	// Load returns the value of a key. The error is fs.ErrNotExist if there is none.
	Load(ctx context.Context, key string) ([]byte, error)

	// Update replaces the value of a key with the result of renew and returns the new value. If there is no value, renew is
	// called with nil. Concurrent updates are serialized.
	Update(ctx context.Context, key string, renew func(value []byte) ([]byte, error)) ([]byte, error)

	// IsAuthentic reports whether only gateways of this issuer can write to the storage. If so, keys added by other gateways
	// are used, and lost keys are restored. Otherwise, replaced keys require action by the operator.
	IsAuthentic() bool

	// Location returns where a value is stored, for messages to the operator.
	Location(key string) string
}

// LockingStorage is a [Storage] that replaces values under a lock.
type LockingStorage struct{ CertMagicStorage }

// CertMagicStorage is a subset of Caddy's certmagic.Storage. The error for a missing key is fs.ErrNotExist.
type CertMagicStorage interface {
	Lock(ctx context.Context, name string) error               // waits for the lock with a name
	Unlock(ctx context.Context, name string) error             // releases the lock with a name
	Load(ctx context.Context, key string) ([]byte, error)      // returns the value of a key
	Store(ctx context.Context, key string, value []byte) error // stores the value of a key
}

// Update implements [Storage].
func (l LockingStorage) Update(ctx context.Context, key string, renew func([]byte) ([]byte, error)) (renewed []byte, err error) {
	if err := l.Lock(ctx, key); err != nil {
		return nil, fmt.Errorf("locking the key storage: %w", err)
	}
	defer func() { err = errors.Join(err, l.Unlock(context.WithoutCancel(ctx), key)) }()
	value, err := l.Load(ctx, key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	renewed, err = renew(value)
	if err != nil || bytes.Equal(renewed, value) {
		return renewed, err
	}
	return renewed, l.Store(ctx, key, renewed)
}

// IsAuthentic implements [Storage]. Administrators of the storage may replace its values.
func (LockingStorage) IsAuthentic() bool { return false }

// Location implements [Storage]. For file-based storage, it returns the file name.
func (l LockingStorage) Location(key string) string {
	if files, ok := l.CertMagicStorage.(interface{ Filename(key string) string }); ok {
		return files.Filename(key)
	}
	return key + " in storage"
}

var _ Storage = LockingStorage{}

// storageKeyring contains the storage keys of one issuer. It loads them on first use.
type storageKeyring struct {
	storage Storage
	name    string
	loaded  *storageKeysInUse
}

// storageKeysInUse contains the storage keys in memory.
type storageKeysInUse struct {
	mu   sync.Mutex // held while the keys are read from storage
	keys atomic.Pointer[storageKeys]
}

// storageKeyName returns the name under which the storage keys are stored, derived from the name of the token keys.
func storageKeyName(name string) string { return strings.TrimSuffix(name, ".json") + "-stored.json" }

// StorageNames returns the names of all values that a [Keyring] stores.
func StorageNames(name string) []string { return []string{name, storageKeyName(name)} }

// SealStored implements [StorageSealer]. The format is <key id>.<base64url>.
func (k *storageKeyring) SealStored(ctx context.Context, text, binding string) (string, error) {
	keys, err := k.currentKeys(ctx)
	if err != nil {
		return "", err
	}
	return keys.seal(text, binding)
}

// UnsealStored implements [StorageSealer]. It ignores the time of sealing, because a wrong clock must not prevent sign-in.
func (k *storageKeyring) UnsealStored(ctx context.Context, sealed, binding string) (string, error) {
	keys, err := k.currentKeys(ctx)
	if err != nil {
		return "", err
	}
	kid, box, _ := strings.Cut(sealed, ".")
	for _, key := range keys.allKeys() {
		if kid != key.JWK.KeyID {
			continue
		}
		sealer, err := key.newSealer()
		if err != nil {
			return "", err
		}
		return sealer.UnsealAnyAge(box, binding)
	}
	return "", ErrUnsealFailed
}

// currentKeys returns the storage keys. On first use, it loads them from storage or generates one.
func (k *storageKeyring) currentKeys(ctx context.Context) (*storageKeys, error) {
	if keys := k.loaded.keys.Load(); keys != nil {
		return keys, nil
	}
	k.loaded.mu.Lock()
	defer k.loaded.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storageTimeout)
	defer cancel()
	return k.refreshLocked(ctx)
}

// reload reloads the storage keys if any are in memory.
func (k *storageKeyring) reload(ctx context.Context) error {
	if k.loaded.keys.Load() == nil {
		return nil
	}
	k.loaded.mu.Lock()
	defer k.loaded.mu.Unlock()
	_, err := k.refreshLocked(ctx)
	return err
}

// refreshLocked reloads the storage keys. The caller must hold mu.
func (k *storageKeyring) refreshLocked(ctx context.Context) (*storageKeys, error) {
	keys, err := k.loadKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading storage key %s: %w", k.name, err)
	}
	k.loaded.keys.Store(keys)
	return keys, nil
}

// loadKeys loads the storage keys. If none exist, it generates a key, unless another gateway has just done so. It restores
// keys in use that are missing from the storage.
func (k *storageKeyring) loadKeys(ctx context.Context) (*storageKeys, error) {
	inUse := k.loaded.keys.Load()
	document, err := k.storage.Load(ctx, k.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && inUse != nil && bytes.Equal(document, inUse.document) {
		return inUse, nil
	}
	keys, err := parseStorageKeys(document)
	if err != nil || keys.containsAll(inUse) {
		return keys, err
	}
	document, err = k.storage.Update(ctx, k.name, func(document []byte) ([]byte, error) {
		return mergeStorageKeys(document, inUse)
	})
	if err != nil {
		return nil, err
	}
	return parseStorageKeys(document)
}

var _ StorageSealer = (*storageKeyring)(nil)

// The storage key seals data that is stored for longer than the lifetime of the other keys, e.g. second factors. It is never
// rotated. It has a separate file, because older versions would retire a key that they do not know. Several storage keys exist
// if the storage lost one and another gateway generated a new one before it was restored.

// storageKeys contains the storage keys, as stored.
type storageKeys struct {
	storedKey                  // oldest key, used for sealing
	UnsealOnlyKeys []storedKey `json:"others,omitempty"` // keys used only for unsealing

	document []byte // stored JSON
}

func (k *storageKeys) allKeys() []storedKey {
	return append([]storedKey{k.storedKey}, k.UnsealOnlyKeys...)
}

// mergedWith returns the union of k and others. The order depends only on the keys, so that all gateways agree on the oldest.
func (k *storageKeys) mergedWith(others []storedKey) *storageKeys {
	all := append(k.allKeys(), others...)
	slices.SortFunc(all, func(a, b storedKey) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.JWK.KeyID, b.JWK.KeyID))
	})
	all = slices.CompactFunc(all, func(a, b storedKey) bool { return a.JWK.KeyID == b.JWK.KeyID })
	return &storageKeys{storedKey: all[0], UnsealOnlyKeys: all[1:]}
}

// containsAll reports whether k is not nil and contains all keys in inUse.
func (k *storageKeys) containsAll(inUse *storageKeys) bool {
	return k != nil && (inUse == nil || len(k.mergedWith(inUse.allKeys()).UnsealOnlyKeys) == len(k.UnsealOnlyKeys))
}

// parseStorageKeys decodes stored storage keys. It returns nil if document is nil.
func parseStorageKeys(document []byte) (*storageKeys, error) {
	if document == nil {
		return nil, nil
	}
	keys := &storageKeys{document: document}
	if err := json.Unmarshal(document, keys); err != nil {
		return nil, err
	}
	for _, key := range keys.allKeys() {
		if _, err := key.secretBytes(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// mergeStorageKeys adds the storage keys in use to a document. If there are no keys at all, it adds a new one.
func mergeStorageKeys(document []byte, inUse *storageKeys) ([]byte, error) {
	keys, err := parseStorageKeys(document)
	switch {
	case err != nil || keys.containsAll(inUse):
		return document, err
	case keys != nil:
		return json.Marshal(keys.mergedWith(inUse.allKeys()))
	case inUse != nil:
		return json.Marshal(inUse)
	}
	key, err := generateKey(sealAlgorithm, time.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(key)
}

// SharedKeys contains keys that an operator configures for several gateways. The first key seals; any key can unseal.
type SharedKeys []*Sealer

const (
	minSharedKeySize = 32 // in bytes
	sharedKeyCommand = "openssl rand -base64 32"
)

// NewSharedKeys derives keys for a purpose from secrets. Each secret is the base64 encoding of at least 32 random bytes. Keys
// for one purpose cannot unseal data sealed for another.
func NewSharedKeys(purpose string, secrets ...string) (SharedKeys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("at least one secret is required")
	}
	var keys SharedKeys
	for _, secret := range secrets {
		random, err := decodeSecret(secret)
		if err != nil || len(random) < minSharedKeySize {
			return nil, fmt.Errorf("secret must be base64 of at least %d random bytes; generate one with: %s", minSharedKeySize, sharedKeyCommand)
		}
		derived, err := hkdf.Key(sha256.New, random, nil, "caddy-fhir "+purpose, 32)
		if err != nil {
			return nil, err
		}
		key, err := NewSealer(derived)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// decodeSecret decodes standard or URL-safe base64, with or without padding.
func decodeSecret(secret string) ([]byte, error) {
	secret = strings.NewReplacer("-", "+", "_", "/", "=", "", "\n", "").Replace(strings.TrimSpace(secret))
	return base64.RawStdEncoding.DecodeString(secret)
}

// Seal is like [Sealer.Seal], with the first key.
func (k SharedKeys) Seal(text, binding string) string { return k[0].Seal(text, binding) }

// Unseal is like [Sealer.Unseal], with any of the keys.
func (k SharedKeys) Unseal(sealed, binding string, maxAge time.Duration) (text string, err error) {
	for _, key := range k {
		if text, err = key.Unseal(sealed, binding, maxAge); err == nil {
			return text, nil
		}
	}
	return "", err
}

// UnsealAnyAge is like [Sealer.UnsealAnyAge], with any of the keys. by is the index of the key.
func (k SharedKeys) UnsealAnyAge(sealed, binding string) (text string, by int, err error) {
	for i, key := range k {
		if text, err = key.UnsealAnyAge(sealed, binding); err == nil {
			return text, i, nil
		}
	}
	return "", 0, err
}

package keyring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
)

// storageKeyring holds the storage keys of one issuer. It reads them on first use.
type storageKeyring struct {
	storage Storage
	name    string
	inUse   *storageKeysInUse
}

// storageKeysInUse are the storage keys in memory.
type storageKeysInUse struct {
	mu   sync.Mutex // held while reading the storage
	keys atomic.Pointer[storageKeys]
}

// storageKeyName is where the storage keys are, beside the other keys.
func storageKeyName(name string) string { return strings.TrimSuffix(name, ".json") + "-stored.json" }

// Names are those of all values that a [Keyring] of a name keeps in its storage.
func Names(name string) []string { return []string{name, storageKeyName(name)} }

// SealStored implements [Storing]. The form is <key id>.<base64url>.
func (k *storageKeyring) SealStored(ctx context.Context, text, binding string) (string, error) {
	keys, err := k.get(ctx)
	if err != nil {
		return "", err
	}
	return keys.seal(text, binding)
}

// UnsealStored implements [Storing]. It does not ask for the time: a clock that was wrong must
// not keep people from signing in.
func (k *storageKeyring) UnsealStored(ctx context.Context, sealed, binding string) (string, error) {
	keys, err := k.get(ctx)
	if err != nil {
		return "", err
	}
	kid, box, _ := strings.Cut(sealed, ".")
	for _, key := range keys.all() {
		if kid != key.JWK.KeyID {
			continue
		}
		sealer, err := key.sealer()
		if err != nil {
			return "", err
		}
		return sealer.Open(box, binding)
	}
	return "", ErrUnsealed
}

// get returns the storage keys, and makes one on first need.
func (k *storageKeyring) get(ctx context.Context) (*storageKeys, error) {
	if keys := k.inUse.keys.Load(); keys != nil {
		return keys, nil
	}
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return k.refresh(ctx)
}

// look reads the storage keys again, if any are in use.
func (k *storageKeyring) look(ctx context.Context) error {
	if k.inUse.keys.Load() == nil {
		return nil
	}
	k.inUse.mu.Lock()
	defer k.inUse.mu.Unlock()
	_, err := k.refresh(ctx)
	return err
}

// refresh reads the storage keys again. It requires mu.
func (k *storageKeyring) refresh(ctx context.Context) (*storageKeys, error) {
	keys, err := k.read(ctx)
	if err != nil {
		return nil, fmt.Errorf("the key of what is stored, %s: %w", k.name, err)
	}
	k.inUse.keys.Store(keys)
	return keys, nil
}

// read loads the storage keys. If there is none it makes one, unless another gateway has just
// done so; if those in use are missing, it puts them back.
func (k *storageKeyring) read(ctx context.Context) (*storageKeys, error) {
	inUse := k.inUse.keys.Load()
	document, err := k.storage.Load(ctx, k.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && inUse != nil && bytes.Equal(document, inUse.document) {
		return inUse, nil
	}
	keys, err := parseStorageKeys(document)
	if err != nil || keys.hasAll(inUse) {
		return keys, err
	}
	document, err = k.storage.Update(ctx, k.name, func(document []byte) ([]byte, error) {
		return joinStorageKeys(document, inUse)
	})
	if err != nil {
		return nil, err
	}
	return parseStorageKeys(document)
}

var _ Storing = (*storageKeyring)(nil)

package keyring

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// The storage key seals what is stored for longer than the other keys live, such as people's
// second factors. It is never replaced, and has a file of its own beside theirs: an earlier
// version, which does not know it, would retire it. There are several if the store lost it, and
// another gateway made one before it was put back.

// storageKeys are the storage keys, and their form in the storage.
type storageKeys struct {
	storedKey             // seals: the oldest
	Others    []storedKey `json:"others,omitempty"` // open what they sealed

	document []byte // that was read
}

func (k *storageKeys) all() []storedKey { return append([]storedKey{k.storedKey}, k.Others...) }

// joined returns these keys and others, in the same order whoever joins them.
func (k *storageKeys) joined(others []storedKey) *storageKeys {
	all := append(k.all(), others...)
	slices.SortFunc(all, func(a, b storedKey) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.JWK.KeyID, b.JWK.KeyID))
	})
	all = slices.CompactFunc(all, func(a, b storedKey) bool { return a.JWK.KeyID == b.JWK.KeyID })
	return &storageKeys{storedKey: all[0], Others: all[1:]}
}

// SealStored implements [Storing]. The form is <key id>.<base64url>.
func (k *Keyring) SealStored(ctx context.Context, text, binding string) (string, error) {
	keys, err := k.storageKeys(ctx)
	if err != nil {
		return "", err
	}
	return keys.seal(text, binding)
}

// UnsealStored implements [Storing]. It does not ask for the time: a clock that was wrong must
// not keep people from signing in.
func (k *Keyring) UnsealStored(ctx context.Context, sealed, binding string) (string, error) {
	keys, err := k.storageKeys(ctx)
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

// storageKeys returns the storage keys, and makes one on first need.
func (k *Keyring) storageKeys(ctx context.Context) (*storageKeys, error) {
	if keys := k.storing.Load(); keys != nil {
		return keys, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return k.refreshStorageKeys(ctx)
}

// refreshStorageKeys reads the storage keys again. It requires mu.
func (k *Keyring) refreshStorageKeys(ctx context.Context) (*storageKeys, error) {
	keys, err := k.readStorageKeys(ctx)
	if err != nil {
		return nil, fmt.Errorf("the key of what is stored, %s: %w", k.storageKeyName(), err)
	}
	k.storing.Store(keys)
	return keys, nil
}

func (k *Keyring) storageKeyName() string {
	return strings.TrimSuffix(k.name, ".json") + "-stored.json"
}

// readStorageKeys loads the storage keys. If there is none it makes one, unless another gateway
// has just done so; if those in use are missing, it puts them back.
func (k *Keyring) readStorageKeys(ctx context.Context) (*storageKeys, error) {
	inUse := k.storing.Load()
	document, err := k.storage.Load(ctx, k.storageKeyName())
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
	document, err = k.storage.Update(ctx, k.storageKeyName(), func(document []byte) ([]byte, error) {
		return joinStorageKeys(document, inUse)
	})
	if err != nil {
		return nil, err
	}
	return parseStorageKeys(document)
}

// hasAll reports whether there are keys, and those in use are among them.
func (k *storageKeys) hasAll(inUse *storageKeys) bool {
	return k != nil && (inUse == nil || len(k.joined(inUse.all()).Others) == len(k.Others))
}

// parseStorageKeys reads a document of storage keys; nil if there is none.
func parseStorageKeys(document []byte) (*storageKeys, error) {
	if document == nil {
		return nil, nil
	}
	keys := &storageKeys{document: document}
	if err := json.Unmarshal(document, keys); err != nil {
		return nil, err
	}
	for _, key := range keys.all() {
		if _, err := key.secret(); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// joinStorageKeys returns a document with the storage keys in use, or with a new one if there
// are none at all.
func joinStorageKeys(document []byte, inUse *storageKeys) ([]byte, error) {
	keys, err := parseStorageKeys(document)
	switch {
	case err != nil || keys.hasAll(inUse):
		return document, err
	case keys != nil:
		return json.Marshal(keys.joined(inUse.all()))
	case inUse != nil:
		return json.Marshal(inUse)
	}
	key, err := generateKey(sealAlgorithm, time.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(key)
}

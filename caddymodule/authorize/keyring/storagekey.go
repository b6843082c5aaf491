package keyring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// The storage key seals what is stored for longer than the other keys live, such as people's
// second factors. It is never replaced, and has a file of its own beside theirs: an earlier
// version, which does not know it, would retire it.

// SealStored implements [Storing]. The form is <key id>.<base64url>.
func (k *Keyring) SealStored(ctx context.Context, text, binding string) (string, error) {
	key, err := k.storageKey(ctx)
	if err != nil {
		return "", err
	}
	return key.seal(text, binding)
}

// UnsealStored implements [Storing]. It does not ask for the time: a clock that was wrong must
// not keep people from signing in.
func (k *Keyring) UnsealStored(ctx context.Context, sealed, binding string) (string, error) {
	key, err := k.storageKey(ctx)
	if err != nil {
		return "", err
	}
	sealer, err := key.sealer()
	if err != nil {
		return "", err
	}
	kid, box, _ := strings.Cut(sealed, ".")
	if kid != key.JWK.KeyID {
		return "", ErrUnsealed
	}
	return sealer.Open(box, binding)
}

// storageKey returns the storage key, and makes it on first need.
func (k *Keyring) storageKey(ctx context.Context) (storedKey, error) {
	if key := k.storing.Load(); key != nil {
		return *key, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	key, err := k.loadStorageKey(ctx)
	if err != nil {
		return key, fmt.Errorf("the key of what is stored, %s: %w", k.storageKeyName(), err)
	}
	k.storing.Store(&key)
	return key, nil
}

func (k *Keyring) storageKeyName() string {
	return strings.TrimSuffix(k.name, ".json") + "-stored.json"
}

// loadStorageKey loads the storage key. If there is none it makes one, unless another gateway
// has just done so.
func (k *Keyring) loadStorageKey(ctx context.Context) (key storedKey, err error) {
	document, err := k.storage.Load(ctx, k.storageKeyName())
	if errors.Is(err, fs.ErrNotExist) {
		document, err = k.storage.Update(ctx, k.storageKeyName(), makeStorageKey)
	}
	if err == nil {
		err = json.Unmarshal(document, &key)
	}
	if err == nil {
		_, err = key.secret()
	}
	return key, err
}

// makeStorageKey returns the document of a storage key, or the one that there is.
func makeStorageKey(document []byte) ([]byte, error) {
	if document != nil {
		return document, nil
	}
	key, err := generateKey(sealAlgorithm, time.Now())
	if err != nil {
		return nil, err
	}
	return json.Marshal(key)
}

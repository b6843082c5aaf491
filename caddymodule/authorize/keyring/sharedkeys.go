package keyring

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// SharedKeys are keys that an operator gives to several gateways. The first one seals, and
// any of them opens.
type SharedKeys []*Sealer

const (
	minSharedKey     = 32 // bytes
	sharedKeyCommand = "openssl rand -base64 32"
)

// NewSharedKeys returns keys for a purpose, made of secrets, each of which is base64 of at
// least 32 random bytes. Keys for another purpose open nothing of this one's.
func NewSharedKeys(purpose string, secrets ...string) (SharedKeys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there must be a secret")
	}
	var keys SharedKeys
	for _, secret := range secrets {
		random, err := decodeSecret(secret)
		if err != nil || len(random) < minSharedKey {
			return nil, fmt.Errorf("must be base64 of %d random bytes or more; make one with: %s", minSharedKey, sharedKeyCommand)
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

// decodeSecret reads base64 in either alphabet, padded or not.
func decodeSecret(secret string) ([]byte, error) {
	secret = strings.NewReplacer("-", "+", "_", "/", "=", "", "\n", "").Replace(strings.TrimSpace(secret))
	return base64.RawStdEncoding.DecodeString(secret)
}

// Seal seals as [Sealer.Seal] does.
func (k SharedKeys) Seal(text, binding string) string { return k[0].Seal(text, binding) }

// Unseal opens as [Sealer.Unseal] does.
func (k SharedKeys) Unseal(sealed, binding string, maxAge time.Duration) (text string, err error) {
	for _, key := range k {
		if text, err = key.Unseal(sealed, binding, maxAge); err == nil {
			return text, nil
		}
	}
	return "", err
}

// Open opens as [Sealer.Open] does, and also returns which key sealed the text.
func (k SharedKeys) Open(sealed, binding string) (text string, by int, err error) {
	for i, key := range k {
		if text, err = key.Open(sealed, binding); err == nil {
			return text, i, nil
		}
	}
	return "", 0, err
}

package sealedstorage

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// Keys seal values: the first one new values, and any of them opens.
type Keys []*keyring.Sealer

// minSecret is the least size of a secret in bytes.
const minSecret = 32

// Command makes a secret for [NewKeys].
const Command = "openssl rand -base64 32"

// NewKeys returns keys made of secrets, each of which is base64 of at least 32 random bytes.
func NewKeys(secrets ...string) (Keys, error) {
	if len(secrets) == 0 {
		return nil, errors.New("there must be a secret")
	}
	var keys Keys
	for _, secret := range secrets {
		key, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func newKey(secret string) (*keyring.Sealer, error) {
	random, err := decode(secret)
	if err != nil || len(random) < minSecret {
		return nil, fmt.Errorf("must be base64 of %d random bytes or more; make one with: %s", minSecret, Command)
	}
	derived, err := hkdf.Key(sha256.New, random, nil, "caddy-fhir signing keys", 32)
	if err != nil {
		return nil, err
	}
	return keyring.NewSealer(derived)
}

// decode reads base64 in either alphabet, padded or not.
func decode(secret string) ([]byte, error) {
	secret = strings.NewReplacer("-", "+", "_", "/", "=", "", "\n", "").Replace(strings.TrimSpace(secret))
	return base64.RawStdEncoding.DecodeString(secret)
}

// version of the form of a stored value: <version>.<sealed by AES-256-GCM, base64url>.
const version = "1."

func (k Keys) seal(value []byte, name string) []byte {
	return []byte(version + k[0].Seal(string(value), name))
}

// open returns a sealed value, and which key sealed it.
func (k Keys) open(sealed []byte, name string) (value []byte, by int, err error) {
	box, isKnown := strings.CutPrefix(string(sealed), version)
	if !isKnown {
		return nil, 0, errors.New("stored by another version of this program, or damaged")
	}
	for i, key := range k {
		if text, err := key.Open(box, name); err == nil {
			return []byte(text), i, nil
		}
	}
	return nil, 0, errors.New("sealed with another store_key, or damaged; put the store_key that sealed it after the present one")
}

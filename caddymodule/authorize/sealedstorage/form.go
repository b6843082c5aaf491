package sealedstorage

import (
	"errors"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
)

// NewKeys returns the keys for a [Storage].
func NewKeys(secrets ...string) (keyring.SharedKeys, error) {
	return keyring.NewSharedKeys("signing keys", secrets...)
}

// version of the form of a stored value: <version>.<sealed by AES-256-GCM, base64url>.
const version = "1."

func (s *Storage) seal(value []byte, name string) []byte {
	return []byte(version + s.Keys.Seal(string(value), name))
}

// open returns a sealed value, and which key sealed it.
func (s *Storage) open(sealed []byte, name string) (value []byte, by int, err error) {
	box, isKnown := strings.CutPrefix(string(sealed), version)
	if !isKnown {
		return nil, 0, errors.New("stored by another version of this program, or damaged")
	}
	text, by, err := s.Keys.Open(box, name)
	if err != nil {
		return nil, 0, errors.New("sealed with another store_key, or damaged; put the store_key that sealed it after the present one")
	}
	return []byte(text), by, nil
}

package caddymodule

import (
	"errors"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"
)

var errUnknownHash = errors.New("is neither bcrypt nor argon2id; make one with: caddy hash-password")

// passwords compares by Caddy's own hash modules, picked by the hash's prefix.
type passwords struct{}

// Compare implements authorize.PasswordComparer.
func (passwords) Compare(hash, password []byte) (bool, error) {
	if strings.HasPrefix(string(hash), "$argon2id$") {
		return caddyauth.Argon2idHash{}.Compare(hash, password)
	}
	return caddyauth.BcryptHash{}.Compare(hash, password)
}

// checkHash finds at load what Compare would only find at the first sign-in.
func checkHash(hash string) error {
	if strings.HasPrefix(hash, "$argon2id$") {
		_, _, err := caddyauth.DecodeHash([]byte(hash))
		return err
	}
	if _, err := bcrypt.Cost([]byte(hash)); err != nil {
		return errUnknownHash
	}
	return nil
}

package caddymodule

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"
)

// hashCommand makes a hash that takes some fifty milliseconds to compare. Without the
// algorithm Caddy makes a bcrypt hash of cost 14, which takes more than a second of a
// core, and anybody can have it computed.
const hashCommand = "caddy hash-password --algorithm argon2id"

var errUnknownHash = errors.New("is neither bcrypt nor argon2id; make one with: " + hashCommand)

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
		if _, _, err := caddyauth.DecodeHash([]byte(hash)); err != nil {
			return err
		}
		if _, passes, threads := argon2idCost(hash); passes == 0 || threads == 0 {
			return errors.New("is no argon2id hash: it has no iterations or no threads")
		}
		return nil
	}
	if _, err := bcrypt.Cost([]byte(hash)); err != nil {
		return errUnknownHash
	}
	return nil
}

// checkPasswordHash is checkHash for a line of the Caddyfile. It does not repeat the
// text, which may be a password.
func checkPasswordHash(hash string) error {
	if err := checkHash(hash); err != nil {
		return fmt.Errorf("password_hash %w", err)
	}
	return nil
}

// What a hash may cost before it is worth a warning: half a second of a core, or so.
const (
	maxBcryptCost   = 12
	maxArgon2idCost = 256 << 10 // KiB of memory, times passes over them
)

// isCostly reports whether to compare a hash, which is one, takes so long that a few
// tries at a time keep the cores busy.
func isCostly(hash string) bool {
	if strings.HasPrefix(hash, "$argon2id$") {
		memory, passes, _ := argon2idCost(hash)
		return uint64(memory)*uint64(passes) > maxArgon2idCost
	}
	cost, err := bcrypt.Cost([]byte(hash))
	return err == nil && cost > maxBcryptCost
}

// argon2idCost is what an argon2id hash takes: KiB of memory, passes over them, and
// threads. They are 0 where the hash does not say so.
func argon2idCost(hash string) (memory, passes uint32, threads uint8) {
	var version int
	_, _ = fmt.Sscanf(hash, "$argon2id$v=%d$m=%d,t=%d,p=%d$", &version, &memory, &passes, &threads)
	return memory, passes, threads
}

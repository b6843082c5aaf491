package fhirapp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"
)

// hashCommand makes a hash that takes some 50 ms to compare. Caddy's default, bcrypt of cost 14, takes more than a second of
// processor time for anybody who tries to sign in.
const hashCommand = "caddy hash-password --algorithm argon2id"

var errUnknownHash = errors.New("is neither bcrypt nor argon2id; make one with: " + hashCommand)

// Passwords compares with Caddy's own hash modules, chosen by the hash's prefix.
type Passwords struct{}

// Compare implements [people.PasswordComparer].
func (Passwords) Compare(hash, password []byte) (bool, error) {
	if strings.HasPrefix(string(hash), "$argon2id$") {
		return caddyauth.Argon2idHash{}.Compare(hash, password)
	}
	return caddyauth.BcryptHash{}.Compare(hash, password)
}

// checkHash finds at load time what Compare would find at the first sign-in.
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

// CheckPasswordHash returns an error that names the option if a hash is invalid. The error does not repeat the value, which may be
// a password.
func CheckPasswordHash(hash string) error {
	if err := checkHash(hash); err != nil {
		return fmt.Errorf("password_hash %w", err)
	}
	return nil
}

// The cost above which a hash is worth a warning: about half a second of processor time.
const (
	maxBcryptCost   = 12
	maxArgon2idCost = 256 << 10 // KiB of memory, times passes over them
)

// isCostly reports whether a few comparisons with a valid hash keep all processors busy.
func isCostly(hash string) bool {
	if strings.HasPrefix(hash, "$argon2id$") {
		memory, passes, _ := argon2idCost(hash)
		return uint64(memory)*uint64(passes) > maxArgon2idCost
	}
	cost, err := bcrypt.Cost([]byte(hash))
	return err == nil && cost > maxBcryptCost
}

// argon2idCost is the memory in KiB, passes and threads of an argon2id hash; 0 if the hash does not say.
func argon2idCost(hash string) (memory, passes uint32, threads uint8) {
	var version int
	_, _ = fmt.Sscanf(hash, "$argon2id$v=%d$m=%d,t=%d,p=%d$", &version, &memory, &passes, &threads)
	return memory, passes, threads
}

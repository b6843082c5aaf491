package people

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/totp"
)

// Directory holds the local users and checks their passwords.
type Directory struct {
	Users   map[string]*User    // by ID
	names   map[string][]string // IDs by canonicalName
	compare PasswordComparer

	// hashes are all users'. One of them is compared when the user is unknown,
	// so that the time taken does not tell which names exist.
	hashes []string

	turns hashTurns
}

// decoy is the hash to compare for a name that is unknown: always the same one
// for a name, and each user's for as many names. Where hashes cost differently,
// a slow or quick answer then says as little of a name as another. One decoy for
// all, however slow, would tell apart every user whose hash is quicker.
func (d *Directory) decoy(id string) string {
	sum := sha256.Sum256([]byte(id))
	return d.hashes[binary.BigEndian.Uint64(sum[:])%uint64(len(d.hashes))]
}

// PasswordComparer checks a password against a hash. Its method is that of the
// modules in Caddy's namespace http.authentication.hashes.
type PasswordComparer interface {
	// Compare says whether a password is the one that was hashed. It fails on what
	// is no hash of its kind.
	Compare(hash, password []byte) (bool, error)
}

// ErrWrongPassword refuses a try; it does not say whether there is such a user.
var ErrWrongPassword = &oauth2.Error{Code: "access_denied", Description: "unknown user or wrong password", Status: http.StatusForbidden}

// NewDirectory checks the users, and says which of them cannot be.
func NewDirectory(users []User, compare PasswordComparer) (*Directory, error) {
	d := &Directory{
		Users:   make(map[string]*User, len(users)),
		names:   make(map[string][]string, len(users)),
		compare: compare,
		turns:   newHashTurns(),
	}
	for i := range users {
		u := &users[i]
		if u.ID == "" || u.PasswordHash == "" {
			return nil, fmt.Errorf("user %q needs an id and a password_hash", u.ID)
		}
		if d.Users[u.ID] != nil {
			return nil, fmt.Errorf("user %q is there twice", u.ID)
		}
		if err := CheckFHIRUser(u.FHIRUser); u.FHIRUser != "" && err != nil {
			return nil, fmt.Errorf("user %q: fhir_user %w", u.ID, err)
		}
		if u.TOTPSecret != "" {
			if err := totp.CheckSecret(u.TOTPSecret); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		for name, value := range u.Claims {
			if err := CheckClaim(name, value); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		if u.Email != "" {
			if err := CheckEmail(u.Email); err != nil {
				return nil, fmt.Errorf("user %q: %w", u.ID, err)
			}
		}
		u.username, u.TokensBoundTo = u.ID, u.credentialHash()
		d.Users[u.ID] = u
		d.names[lockout.CanonicalName(u.ID)] = append(d.names[lockout.CanonicalName(u.ID)], u.ID)
		d.hashes = append(d.hashes, u.PasswordHash)
	}
	return d, nil
}

// AccountNamed is the ID of the one account that somebody means who types a name: the
// one of this name to the letter, or else the only one of any spelling. It is empty
// where there is none.
func (d *Directory) AccountNamed(typed string) string {
	if d.Users[typed] != nil {
		return typed
	}
	if ids := d.names[lockout.CanonicalName(typed)]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// SignIn returns the user with an ID and password, or [ErrWrongPassword]. Attempts from a
// network take turns with others; known says that the user signed in in this browser before.
func (d *Directory) SignIn(ctx context.Context, network string, known bool, id, password string) (*User, error) {
	if len(d.Users) == 0 {
		return nil, ErrWrongPassword
	}
	leave, err := d.turns.enter(ctx, network, known)
	if err != nil {
		return nil, err
	}
	defer leave()
	user, hash := d.Users[id], d.decoy(id)
	if user != nil {
		hash = user.PasswordHash
	}
	right, err := d.compare.Compare([]byte(hash), []byte(password))
	if err != nil {
		return nil, fmt.Errorf("checking a password: %w", err)
	}
	if user == nil || user.Disabled || !right {
		return nil, ErrWrongPassword
	}
	return user, nil
}

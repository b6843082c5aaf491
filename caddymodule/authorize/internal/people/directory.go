package people

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
)

// Directory holds the local users and checks their passwords.
type Directory struct {
	Users map[string]*User // by ID

	// Known is asked about a user who is not known, and says why there may be more, if so. Default:
	// there are no more.
	Known func(context.Context) error

	names   map[string][]string // IDs by [lockout.CanonicalName]
	compare PasswordComparer
	hashes  []string // of all users
	turns   hashTurns
}

// decoy is the hash to compare for an unknown name, so that timing does not reveal which
// names exist. A name always has the same one, of any user: with a single decoy for all,
// users with faster hashes would stand out.
func (d *Directory) decoy(id string) string {
	sum := sha256.Sum256([]byte(id))
	return d.hashes[binary.BigEndian.Uint64(sum[:])%uint64(len(d.hashes))]
}

// PasswordComparer checks passwords, as Caddy's modules http.authentication.hashes do.
type PasswordComparer interface {
	// Compare reports whether a hash is of the password. It fails on an invalid hash.
	Compare(hash, password []byte) (bool, error)
}

// ErrWrongPassword does not reveal whether the user exists.
var ErrWrongPassword = &oauth2.Error{Code: "access_denied", Description: "unknown user or wrong password", Status: http.StatusForbidden}

// NewDirectory returns the directory of users, or an error if one of them is invalid.
func NewDirectory(users []User, compare PasswordComparer) (*Directory, error) {
	d := &Directory{
		Users:   make(map[string]*User, len(users)),
		names:   make(map[string][]string, len(users)),
		compare: compare,
		turns:   newHashTurns(),
	}
	for i := range users {
		u := &users[i]
		if err := subject.CheckConfigured(u.ID); err != nil {
			return nil, fmt.Errorf("user %q: the name, which is the sub of tokens, %w", u.ID, err)
		}
		if u.PasswordHash == "" {
			return nil, fmt.Errorf("user %q needs a password_hash", u.ID)
		}
		if d.Users[u.ID] != nil {
			return nil, fmt.Errorf("duplicate user %s", u.ID)
		}
		if err := u.check(); err != nil {
			return nil, fmt.Errorf("user %q: %w", u.ID, err)
		}
		u.username, u.TokensBoundTo = u.ID, u.credentialHash()
		d.Users[u.ID] = u
		d.names[lockout.CanonicalName(u.ID)] = append(d.names[lockout.CanonicalName(u.ID)], u.ID)
		d.hashes = append(d.hashes, u.PasswordHash)
	}
	return d, nil
}

// Generation is that of the user with an ID; 0 for who is no local user.
func (d *Directory) Generation(id string) oauth2.Generation {
	if user := d.Users[id]; user != nil {
		return user.Generation
	}
	return 0
}

func (d *Directory) known(ctx context.Context) error {
	if d.Known == nil {
		return nil
	}
	return d.Known(ctx)
}

// AccountNamed returns the ID of the account that a typed name means: the exact one, or else
// the only one spelled alike; "" if there is none.
func (d *Directory) AccountNamed(typed string) string {
	if d.Users[typed] != nil {
		return typed
	}
	if ids := d.names[lockout.CanonicalName(typed)]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// SignIn returns the user with an ID and password, or [ErrWrongPassword]. Networks take
// turns; known says that the user has signed in in this browser before.
func (d *Directory) SignIn(ctx context.Context, network string, known bool, id, password string) (*User, error) {
	if d.Users[id] == nil {
		if err := d.known(ctx); err != nil {
			return nil, err
		}
	}
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

// hashTurns bounds how many passwords are compared at once: anybody can send them, and each
// keeps a core busy for tens of milliseconds or more. Networks take turns, so that one does
// not delay another. Known browsers have a queue of their own, so that no flood, from however
// many networks, delays people at their usual computers.
type hashTurns struct {
	strangers, known *fairqueue.Queue
}

// holders are the networks that an attempt counts for: with IPv6 the /48 too, because one
// customer often has all of its 65,536 networks.
func holders(network string) []string {
	if prefix, err := netip.ParsePrefix(network); err == nil {
		return []string{netip.PrefixFrom(prefix.Addr(), 48).Masked().String(), network}
	}
	return []string{network}
}

func newHashTurns() hashTurns {
	cores := runtime.GOMAXPROCS(0)
	return hashTurns{strangers: fairqueue.New(cores), known: fairqueue.New(cores)}
}

// enter waits for a turn, and returns the function that ends it.
func (t hashTurns) enter(ctx context.Context, network string, known bool) (leave func(), err error) {
	queue := t.strangers
	if known {
		queue = t.known
	}
	ctx, cancel := context.WithTimeout(ctx, lockout.QueueTimeout)
	defer cancel()
	leave, err = queue.Enter(ctx, holders(network)...)
	return leave, lockout.QueueError(err)
}

// named returns the local users that a name or an address may mean.
func (d *Directory) named(term string) (ids []string) {
	if id := d.AccountNamed(term); id != "" {
		ids = append(ids, id)
	}
	for _, user := range d.Users {
		if user.Email != "" && lowered(user.Email) == lowered(term) {
			ids = append(ids, user.ID)
		}
	}
	return ids
}

package people

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// Directory holds the local users and checks their passwords.
//
// Use [Directory.Clone] to change it: the cost does not depend on the number of users. The original must not be changed after
// that.
type Directory struct {
	// Known is asked about a user who is not known, and says why there may be more, if so. Default:
	// there are no more.
	Known func(context.Context) error

	users     *snapshotmap.Map[*User]    // by ID
	names     *snapshotmap.Map[[]string] // IDs by [lockout.CanonicalName]
	addresses *snapshotmap.Map[[]string] // IDs by lowered e-mail address
	linked    bool                       // an identity provider links by verified addresses: each is one user's

	compare PasswordComparer
	turns   *hashTurns
}

// decoy is the hash to compare for an unknown name, so that timing does not reveal which
// names exist. A name always has the same one, of any user: with a single decoy for all,
// users with faster hashes would stand out.
func (d *Directory) decoy(id string) string {
	return d.users.Substitute(id).PasswordHash
}

// PasswordComparer checks passwords, as Caddy's modules http.authentication.hashes do.
type PasswordComparer interface {
	// Compare reports whether a hash is of the password. It fails on an invalid hash.
	Compare(hash, password []byte) (bool, error)
}

// ErrWrongPassword does not reveal whether the user exists.
var ErrWrongPassword = &oauth2.Error{Code: "access_denied", Description: "unknown user or wrong password", Status: http.StatusForbidden}

// NewDirectory returns the directory of users, or an error if one of them is invalid. linked is set if an identity provider
// links its people to users by verified e-mail address, which must then be unique.
func NewDirectory(users []User, compare PasswordComparer, linked bool) (*Directory, error) {
	d := &Directory{
		users: new(snapshotmap.Map[*User]), names: new(snapshotmap.Map[[]string]), addresses: new(snapshotmap.Map[[]string]),
		linked: linked, compare: compare, turns: newHashTurns(),
	}
	for _, u := range users {
		if err := d.Add(u); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Clone returns a directory that can be changed.
func (d *Directory) Clone() *Directory {
	clone := *d
	clone.users, clone.names, clone.addresses = d.users.Clone(), d.names.Clone(), d.addresses.Clone()
	return &clone
}

// Add adds a user. It returns an error, and changes nothing, if the user is invalid.
func (d *Directory) Add(u User) error {
	if err := subject.CheckConfigured(u.ID); err != nil {
		return fmt.Errorf("user %q: the name, which is the sub of tokens, %w", u.ID, err)
	}
	if u.PasswordHash == "" {
		return fmt.Errorf("user %q needs a password_hash", u.ID)
	}
	if d.User(u.ID) != nil {
		return fmt.Errorf("duplicate user %s", u.ID)
	}
	if err := u.check(); err != nil {
		return fmt.Errorf("user %q: %w", u.ID, err)
	}
	if err := d.checkLink(&u); err != nil {
		return err
	}
	u.username, u.TokensBoundTo = u.ID, u.credentialHash()
	d.users.Set(u.ID, &u)
	d.list(&u, func(ids []string) []string { return append(slices.Clip(ids), u.ID) })
	return nil
}

// Remove removes a user by ID, if there is one.
func (d *Directory) Remove(id string) {
	if u := d.User(id); u != nil {
		d.users.Delete(id)
		d.list(u, func(ids []string) []string {
			return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
		})
	}
}

// list applies change to the lists of IDs by name and address that a user is in. change must return a new slice: other
// directories share the one it gets.
func (d *Directory) list(u *User, change func(ids []string) []string) {
	set := func(lists *snapshotmap.Map[[]string], key string) {
		if ids := change(lists.Get(key)); len(ids) > 0 {
			lists.Set(key, ids)
			return
		}
		lists.Delete(key)
	}
	set(d.names, lockout.CanonicalName(u.ID))
	if u.Email != "" {
		set(d.addresses, lowered(u.Email))
	}
}

// User returns the user with an ID, or nil.
func (d *Directory) User(id string) *User { return d.users.Get(id) }

// Len is the number of users.
func (d *Directory) Len() int { return d.users.Len() }

// Generation is that of the user with an ID; 0 for who is no local user.
func (d *Directory) Generation(id string) oauth2.Generation {
	if user := d.User(id); user != nil {
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
	if d.User(typed) != nil {
		return typed
	}
	if ids := d.names.Get(lockout.CanonicalName(typed)); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// SignIn returns the user with an ID and password, or [ErrWrongPassword]. Networks take
// turns; known says that the user has signed in in this browser before.
func (d *Directory) SignIn(ctx context.Context, network string, known bool, id, password string) (*User, error) {
	if d.User(id) == nil {
		if err := d.known(ctx); err != nil {
			return nil, err
		}
	}
	if d.Len() == 0 {
		return nil, ErrWrongPassword
	}
	leave, err := d.turns.enter(ctx, network, known)
	if err != nil {
		return nil, err
	}
	defer leave()
	user, hash := d.User(id), d.decoy(id)
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

func newHashTurns() *hashTurns {
	cores := runtime.GOMAXPROCS(0)
	return &hashTurns{strangers: fairqueue.New(cores), known: fairqueue.New(cores)}
}

// enter waits for a turn, and returns the function that ends it.
func (t *hashTurns) enter(ctx context.Context, network string, known bool) (leave func(), err error) {
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
	return append(ids, d.addresses.Get(lowered(term))...)
}

// ErrWrongCode refuses a wrong or used code.
var ErrWrongCode = &oauth2.Error{Code: "access_denied", Description: "wrong or used code of the second factor", Status: http.StatusForbidden}

// OTP accepts each code of a person's authenticator app once.
type OTP struct {
	Durable store.Store  // holds the last used time steps
	Logger  *slog.Logger // gets failures to release a code
}

// UsedStep is the time step of a used code, and the one used before.
type UsedStep struct {
	key          string // in the durable store
	step, before []byte
}

// usedStepLifetime is how long after its use a code, or an earlier one, could be valid.
const usedStepLifetime = (2*totp.Skew + 2) * totp.Step

// UseCode accepts a code of the person's authenticator app if it is later than the last
// one used. Of several requests with the same code, one succeeds (RFC 6238 §5.2).
func (o *OTP) UseCode(ctx context.Context, user *User, code string) (*UsedStep, error) {
	secret, err := totp.DecodeSecret(user.TOTPSecret)
	if err != nil {
		return nil, err // NewDirectory has checked it
	}
	step, ok := totp.MatchingStep(secret, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return nil, ErrWrongCode
	}
	used := &UsedStep{key: store.Key("otp", user.ID), step: strconv.AppendInt(nil, step, 10)}
	used.before, err = o.Durable.Get(ctx, used.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return nil, err
	case !used.follows():
		return nil, ErrWrongCode
	}
	err = o.Durable.Do(ctx, store.Replacing(used.key, used.before, used.step, usedStepLifetime))
	if store.Lost(err) {
		return nil, ErrWrongCode
	}
	return used, err
}

// follows reports whether the step is later than the one used before.
func (u *UsedStep) follows() bool {
	step, err1 := strconv.ParseInt(string(u.step), 10, 64)
	before, err2 := strconv.ParseInt(string(u.before), 10, 64)
	return err1 == nil && err2 == nil && step > before
}

// ReleaseCode lets a code be used again if its sign-in failed through our fault.
func (o *OTP) ReleaseCode(ctx context.Context, user *User, used *UsedStep) {
	before := used.before
	if before == nil {
		before = []byte("0")
	}
	err := o.Durable.Swap(context.WithoutCancel(ctx), used.key, used.step, before, usedStepLifetime)
	if err != nil && !errors.Is(err, store.ErrChanged) { // by another code
		o.Logger.ErrorContext(ctx, "the code of a sign-in that failed stays used", "user", user.ID, "error", err)
	}
}

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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/totp"
)

// Directory contains the local users and checks their passwords.
//
// Changes are made on a [Directory.Clone], at a cost independent of the number of users.
// The original must not be changed afterwards.
type Directory struct {
	// CheckComplete is called if a user is not found. It returns an error if the list of users may be incomplete. Default: the
	// list is complete.
	CheckComplete func(context.Context) error

	users        *snapshotmap.Map[*User]    // keys are user ids
	names        *snapshotmap.Map[[]string] // user ids by [lockout.CanonicalName]
	addresses    *snapshotmap.Map[[]string] // user ids by lower-case e-mail address
	linksByEmail bool                       // whether a provider links by verified address, which makes verified addresses unique

	comparer   PasswordComparer
	hashQueues *hashQueues
}

// decoyHash returns a hash to compare for an unknown name, so that timing does not reveal which names exist. Each name always
// gets the same hash of some user. With a single decoy, users with faster hashes would stand out.
func (d *Directory) decoyHash(id string) string {
	return d.users.PickByKey(id).PasswordHash
}

// PasswordComparer checks passwords, e.g. Caddy's modules http.authentication.hashes.
type PasswordComparer interface {
	// Compare reports whether the hash matches the password. It returns an error for an invalid hash.
	Compare(hash, password []byte) (bool, error)
}

// ErrWrongPassword is returned for wrong passwords and unknown users, deliberately indistinguishable.
var ErrWrongPassword = &oauth2.Error{Code: "access_denied", Description: "unknown user or wrong password", Status: http.StatusForbidden}

// userDisabledError is the reason in the audit log for a disabled user. For the person, it is an [ErrWrongPassword].
type userDisabledError struct{}

func (userDisabledError) Error() string { return "access_denied: user is disabled" }

func (userDisabledError) Unwrap() error { return ErrWrongPassword }

// NewDirectory returns a directory of users, or an error for an invalid user. linksByEmail must be true if an identity provider
// links people to users by verified e-mail address, which must then be unique.
func NewDirectory(users []User, compare PasswordComparer, linksByEmail bool) (*Directory, error) {
	d := &Directory{
		users: new(snapshotmap.Map[*User]), names: new(snapshotmap.Map[[]string]), addresses: new(snapshotmap.Map[[]string]),
		linksByEmail: linksByEmail, comparer: compare, hashQueues: newHashQueues(),
	}
	for _, u := range users {
		if err := d.Add(u); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Clone returns a copy that can be changed.
func (d *Directory) Clone() *Directory {
	clone := *d
	clone.users, clone.names, clone.addresses = d.users.Clone(), d.names.Clone(), d.addresses.Clone()
	return &clone
}

// Add adds a user. If the user is invalid, it returns an error and changes nothing.
func (d *Directory) Add(u User) error {
	if err := namecheck.CheckConfigured(u.ID); err != nil {
		return fmt.Errorf("user %q: the user name %w", u.ID, err)
	}
	if u.PasswordHash == "" {
		return fmt.Errorf("user %q has no password_hash", u.ID)
	}
	if d.User(u.ID) != nil {
		return fmt.Errorf("user %q is configured twice", u.ID)
	}
	if err := u.check(); err != nil {
		return fmt.Errorf("user %q: %w", u.ID, err)
	}
	if err := d.checkLink(&u); err != nil {
		return err
	}
	u.username, u.TokenBinding = u.ID, u.credentialHash()
	d.users.Set(u.ID, &u)
	d.updateLists(&u, func(ids []string) []string { return append(slices.Clip(ids), u.ID) })
	return nil
}

// Remove removes the user with the id, if any.
func (d *Directory) Remove(id string) {
	if u := d.User(id); u != nil {
		d.users.Delete(id)
		d.updateLists(u, func(ids []string) []string {
			return slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return other == id })
		})
	}
}

// updateLists applies change to the id lists of the user's name and address. change must return a new
// slice, because clones share the old one.
func (d *Directory) updateLists(u *User, change func(ids []string) []string) {
	set := func(lists *snapshotmap.Map[[]string], key string) {
		if ids := change(lists.Get(key)); len(ids) > 0 {
			lists.Set(key, ids)
			return
		}
		lists.Delete(key)
	}
	set(d.names, lockout.CanonicalName(u.ID))
	if u.Email != "" {
		set(d.addresses, lowerASCII(u.Email))
	}
}

// User returns the user with the id, or nil.
func (d *Directory) User(id string) *User { return d.users.Get(id) }

// Len returns the number of users.
func (d *Directory) Len() int { return d.users.Len() }

// Generation returns the generation of the user with the id, or 0 if there is no such user.
func (d *Directory) Generation(id string) oauth2.Generation {
	if user := d.User(id); user != nil {
		return user.Generation
	}
	return 0
}

func (d *Directory) checkComplete(ctx context.Context) error {
	if d.CheckComplete == nil {
		return nil
	}
	return d.CheckComplete(ctx)
}

// ResolveName returns the account id for a typed name. An exact match takes precedence over a unique match by canonical name.
// It returns "" if nothing matches.
func (d *Directory) ResolveName(input string) string {
	if d.User(input) != nil {
		return input
	}
	if ids := d.names.Get(lockout.CanonicalName(input)); len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// CheckPassword returns the user with an id and password, or [ErrWrongPassword]. The limiter counts wrong passwords.
func (d *Directory) CheckPassword(r *http.Request, limiter *lockout.Limiter, id, password string) (user *User, err error) {
	counters, knownBrowser, err := limiter.Counters(r, lockout.KindPassword, id, d.ResolveName(id))
	if err != nil {
		return nil, err
	}
	network := fairqueue.Network(audit.ClientAddress(r.Context()))
	err = limiter.Attempt(r.Context(), counters, ErrWrongPassword, func() error {
		user, err = d.comparePassword(r.Context(), network, knownBrowser, id, password)
		return err
	})
	return user, err
}

// comparePassword returns the user with an id and password, or [ErrWrongPassword]. Comparisons are queued
// fairly per network. knownBrowser means that the user has signed in with this browser before.
func (d *Directory) comparePassword(ctx context.Context, network string, knownBrowser bool, id, password string) (*User, error) {
	if d.User(id) == nil {
		if err := d.checkComplete(ctx); err != nil {
			return nil, err
		}
	}
	if d.Len() == 0 {
		return nil, ErrWrongPassword
	}
	release, err := d.hashQueues.acquire(ctx, network, knownBrowser)
	if err != nil {
		return nil, err
	}
	defer release()
	user, hash := d.User(id), d.decoyHash(id)
	if user != nil {
		hash = user.PasswordHash
	}
	matches, err := d.comparer.Compare([]byte(hash), []byte(password))
	if err != nil {
		return nil, fmt.Errorf("checking a password: %w", err)
	}
	switch {
	case user == nil || !matches:
		return nil, ErrWrongPassword
	case user.Disabled:
		return nil, userDisabledError{}
	}
	return user, nil
}

// hashQueues limits concurrent password comparisons, because anyone can send passwords and each comparison uses a core for tens
// of milliseconds or more. Networks are queued fairly. Known browsers have a separate queue, so that floods from any number of
// networks do not delay users at their usual computers.
type hashQueues struct {
	unknownBrowsers, knownBrowsers *fairqueue.Queue
}

// queueKeys returns the queue keys of an attempt from network. For IPv6, they include the /48, because a customer often
// controls all of its 65,536 networks.
func queueKeys(network string) []string {
	if prefix, err := netip.ParsePrefix(network); err == nil {
		return []string{netip.PrefixFrom(prefix.Addr(), 48).Masked().String(), network}
	}
	return []string{network}
}

func newHashQueues() *hashQueues {
	cores := runtime.GOMAXPROCS(0)
	return &hashQueues{unknownBrowsers: fairqueue.New(cores), knownBrowsers: fairqueue.New(cores)}
}

// acquire waits until a comparison may start. The caller must call release after the comparison.
func (t *hashQueues) acquire(ctx context.Context, network string, knownBrowser bool) (release func(), err error) {
	queue := t.unknownBrowsers
	if knownBrowser {
		queue = t.knownBrowsers
	}
	ctx, cancel := context.WithTimeout(ctx, lockout.QueueTimeout)
	defer cancel()
	release, err = queue.Acquire(ctx, queueKeys(network)...)
	return release, lockout.ConvertQueueError(err)
}

// findByTerm returns the local users that a name or address may refer to.
func (d *Directory) findByTerm(term string) (ids []string) {
	if id := d.ResolveName(term); id != "" {
		ids = append(ids, id)
	}
	return append(ids, d.addresses.Get(lowerASCII(term))...)
}

// ErrWrongCode is returned for a wrong or used code.
var ErrWrongCode = &oauth2.Error{Code: "access_denied", Description: "second-factor code is wrong or already used", Status: http.StatusForbidden}

// OTP accepts each code of a user's authenticator app only once.
type OTP struct {
	DurableStore store.Store  // store for the last used time steps
	Logger       *slog.Logger // log for failures to release a code
}

// UsedStep contains the time step of a used code and the previously used step.
type UsedStep struct {
	key            string // key in the durable store
	step, previous []byte
}

// usedStepLifetime is how long a code, or an earlier one, could still be valid after its use.
const usedStepLifetime = (2*totp.Skew + 2) * totp.Step

// UseCode accepts a code of the user's authenticator app if it is later than the last used code. If the same code is used
// concurrently, only one use succeeds (RFC 6238 §5.2).
func (o *OTP) UseCode(ctx context.Context, user *User, code string) (*UsedStep, error) {
	secret, err := totp.DecodeSecret(user.TOTPSecret)
	if err != nil {
		return nil, err // unexpected, because NewDirectory validates users
	}
	step, ok := totp.MatchingStep(secret, strings.ReplaceAll(code, " ", ""), time.Now())
	if !ok {
		return nil, ErrWrongCode
	}
	used := &UsedStep{key: store.Key("otp", user.ID), step: strconv.AppendInt(nil, step, 10)}
	used.previous, err = o.DurableStore.Get(ctx, used.key)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return nil, err
	case !used.isLater():
		return nil, ErrWrongCode
	}
	err = o.DurableStore.Do(ctx, store.ReplaceCall(used.key, used.previous, used.step, usedStepLifetime))
	if store.IsConflict(err) {
		return nil, ErrWrongCode
	}
	return used, err
}

// isLater reports whether the step is later than the previously used step.
func (u *UsedStep) isLater() bool {
	step, err1 := strconv.ParseInt(string(u.step), 10, 64)
	before, err2 := strconv.ParseInt(string(u.previous), 10, 64)
	return err1 == nil && err2 == nil && step > before
}

// ReleaseCode makes a code usable again after its sign-in failed because of an internal error.
func (o *OTP) ReleaseCode(ctx context.Context, user *User, used *UsedStep) {
	before := used.previous
	if before == nil {
		before = []byte("0")
	}
	err := o.DurableStore.Swap(context.WithoutCancel(ctx), used.key, used.step, before, usedStepLifetime)
	if err != nil && !errors.Is(err, store.ErrChanged) { // ErrChanged means that another code was used
		o.Logger.ErrorContext(ctx, "one-time code not released after failed sign-in", "user", user.ID, "error", err)
	}
}

package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"
)

// Store keeps what must be used once or be revocable: codes, sessions, refresh tokens,
// revocations. Keys hold no secret; see [Key].
// A Store is safe for concurrent use and bounded. When full it returns [ErrFull], and
// never drops an unexpired entry: without its revocation, a token would be valid again.
// Package storetest tests implementations.
type Store interface {
	// Put stores value under key for ttl, and replaces what was there.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Add is Put if key holds nothing, and [ErrExists] otherwise. Of several at once,
	// exactly one succeeds.
	Add(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Get returns the value under key, or [ErrNotFound].
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap is Put if key holds old, and [ErrChanged] otherwise. Of several with the
	// same old value, exactly one succeeds.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error

	// Take is Get and Delete in one step. Of several, exactly one succeeds.
	Take(ctx context.Context, key string) ([]byte, error)

	// Delete removes key, which need not exist.
	Delete(ctx context.Context, key string) error

	// Append appends item to the value under key, or stores it if there is none. The value
	// lives for at least ttl from now: a shorter ttl does not shorten its lifetime.
	// If the value would exceed most bytes, it returns [ErrTooLong].
	Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error

	// List returns the unexpired keys with a prefix, unordered. It may scan all keys.
	List(ctx context.Context, prefix string) ([]string, error)

	// Do makes calls in one atomic step, and in one round trip if the store is elsewhere:
	// either all of them succeed or none changes anything, and Do returns the error of the
	// first that failed, as that call does too ([Call.Err]). They all see the store as it is
	// before the step, but a [Get] of a key may also find what another process stored just
	// after it. A key must not be in two of the calls. What they delete makes room in a full
	// store for what they store.
	Do(ctx context.Context, calls ...*Call) error
}

// The errors of a [Store].
var (
	ErrNotFound = errors.New("not in the store")               // or expired
	ErrExists   = errors.New("already in the store")           // of Add
	ErrChanged  = errors.New("changed in the store meanwhile") // of Swap
	ErrFull     = error(outage("the store is full"))           // of Put, Add and Append
	ErrTooLong  = errors.New("too long for the store")         // of Append

	// ErrUnavailable says that a store elsewhere did not answer in time. A change may have
	// happened all the same.
	ErrUnavailable = error(outage("the store cannot be reached"))
)

// An outage is an error of the store as a whole. The store's breaker logs its beginning and end.
type outage string

// Error implements error.
func (o outage) Error() string { return string(o) }

// LoggedElsewhere keeps each request that fails by an outage from being logged.
func (outage) LoggedElsewhere() {}

// Lost reports whether an error says that another was faster to change an entry.
func Lost(err error) bool { return errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) }

// Key returns the key of an entry, which does not reveal the secret.
func Key(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// An Op is a method of a [Store] in a [Call].
type Op int

// The methods that [Store.Do] makes.
const (
	Get    Op = iota // sets Value; if there is nothing, that is nil, and no failure
	Put              // Value for TTL
	Add              // Value for TTL
	Swap             // Value for TTL in place of Old
	Take             // sets Value
	Delete           // Key
	Append           // Value, to at most Max bytes, for TTL
)

// String returns the name of the method.
func (o Op) String() string {
	return [...]string{"Get", "Put", "Add", "Swap", "Take", "Delete", "Append"}[o]
}

// A Call is a call in a step of [Store.Do].
type Call struct {
	Op    Op            // the method
	Key   string        // of the entry
	Old   []byte        // the value to replace
	Value []byte        // the value to store, or what was found
	Max   int           // the longest value in bytes
	TTL   time.Duration // how long the value stays

	Err error // why the step failed, if it did because of this call
}

// Do makes calls of several stores: each run of calls of one store is a step. After one that
// fails, the rest are not made. So calls of different stores are not one atomic step; put
// first what does no harm alone.
func Do(ctx context.Context, steps ...Step) error {
	for len(steps) > 0 {
		n := 1
		for n < len(steps) && steps[n].Store == steps[0].Store {
			n++
		}
		var calls []*Call
		for _, step := range steps[:n] {
			calls = append(calls, step.Calls...)
		}
		if len(calls) > 0 {
			if err := steps[0].Store.Do(ctx, calls...); err != nil {
				return err
			}
		}
		steps = steps[n:]
	}
	return nil
}

// A Step is what [Do] does in one store.
type Step struct {
	Store Store   // has the entries
	Calls []*Call // of one atomic step
}

// In returns the step of some calls in a store.
func In(s Store, calls ...*Call) Step { return Step{s, calls} }

// Values reads some keys in one step; nil for those that there are not.
func Values(ctx context.Context, s Store, keys ...string) (values [][]byte, err error) {
	calls := make([]*Call, len(keys))
	for i, key := range keys {
		calls[i] = &Call{Op: Get, Key: key}
	}
	err = Do(ctx, In(s, calls...))
	for _, c := range calls {
		values = append(values, c.Value)
	}
	return values, err
}

// Replacing returns the call that stores a value in place of what was read, nil for nothing. It fails if something else
// is there by now; see [Lost].
func Replacing(key string, read, value []byte, ttl time.Duration) *Call {
	if read == nil {
		return &Call{Op: Add, Key: key, Value: value, TTL: ttl}
	}
	return &Call{Op: Swap, Key: key, Old: read, Value: value, TTL: ttl}
}

// Deleting returns the calls that delete the entries of keys.
func Deleting(keys ...string) (calls []*Call) {
	for _, key := range keys {
		calls = append(calls, &Call{Op: Delete, Key: key})
	}
	return calls
}

// Alter stores what do makes of the value of a key, nil for none, unless that is nil. After a concurrent change, do runs
// again. It reads in a step, as a gateway's copy may be late. Further calls are made in the step that stores the value.
func Alter(ctx context.Context, s Store, key string, ttl time.Duration, do func(read []byte) ([]byte, error), with ...*Call) error {
	for ctx.Err() == nil {
		read, err := Values(ctx, s, key)
		if err != nil {
			return err
		}
		value, err := do(read[0])
		if value == nil || err != nil {
			return err
		}
		if err = s.Do(ctx, append(slices.Clone(with), Replacing(key, read[0], value, ttl))...); !Lost(err) {
			return err
		}
	}
	return ctx.Err()
}

// Forever is the lifetime of what is never to expire: stores want one.
const Forever = 100 * 365 * 24 * time.Hour

// maxRounds bounds how often [Retry] starts again.
const maxRounds = 20

var errBusy = errors.New("other gateways were quicker each time; try again")

// Retry makes a change again while its error is [Lost]: another gateway was quicker. The change reads anew
// each time.
func Retry(ctx context.Context, change func() error) error {
	for range maxRounds {
		if err := change(); !Lost(err) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errBusy
}

// Once does something under a key unless that was done, and reports whether it did. It notes that afterwards: what fails, or
// whose answer is lost, can be tried again, and two at once both do it. With a full store, it can be done again.
func Once(ctx context.Context, s Store, key string, ttl time.Duration, do func() error) (first bool, err error) {
	if _, err := s.Get(ctx, key); !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if err := do(); err != nil {
		return false, err
	}
	err = s.Add(ctx, key, nil, ttl)
	if errors.Is(err, ErrExists) || errors.Is(err, ErrFull) {
		err = nil
	}
	return true, err
}

// Check sets Err to why a call fails, or to nil, given what is stored under its key, and
// returns it. Every implementation of [Store.Do] checks all calls before it changes anything.
func (c *Call) Check(held []byte, found bool) error {
	c.Err = nil // of an earlier step
	switch {
	case c.Op == Add && found:
		c.Err = ErrExists
	case c.Op == Swap && (!found || !bytes.Equal(held, c.Old)):
		c.Err = ErrChanged
	case c.Op == Take && !found:
		c.Err = ErrNotFound
	case c.Op == Append && len(held)+len(c.Value) > c.Max:
		c.Err = ErrTooLong
	}
	return c.Err
}

// Removes reports whether a call leaves no value under its key. It makes room for another of
// the same step.
func (c *Call) Removes() bool { return c.Op == Take || c.Op == Delete }

// Stores reports whether a call leaves a value under its key.
func (c *Call) Stores() bool { return c.Op == Put || c.Op == Add || c.Op == Swap || c.Op == Append }

// Singly makes single calls by a [Store.Do], each as a step of its own. An implementation of
// [Store] embeds it, with its own Do.
type Singly func(ctx context.Context, calls ...*Call) error

// Put implements [Store].
func (do Singly) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Put, Key: key, Value: value, TTL: ttl})
}

// Add implements [Store].
func (do Singly) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Add, Key: key, Value: value, TTL: ttl})
}

// Swap implements [Store].
func (do Singly) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Swap, Key: key, Old: old, Value: value, TTL: ttl})
}

// Append implements [Store].
func (do Singly) Append(ctx context.Context, key string, item []byte, most int, ttl time.Duration) error {
	return do(ctx, &Call{Op: Append, Key: key, Value: item, Max: most, TTL: ttl})
}

// Get implements [Store].
func (do Singly) Get(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Get, Key: key}
	err := do(ctx, c)
	if err == nil && c.Value == nil {
		err = ErrNotFound
	}
	return c.Value, err
}

// Take implements [Store].
func (do Singly) Take(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Take, Key: key}
	err := do(ctx, c)
	return c.Value, err
}

// Delete implements [Store].
func (do Singly) Delete(ctx context.Context, key string) error {
	return do(ctx, &Call{Op: Delete, Key: key})
}

// A Shared store serves several gateways at once.
type Shared interface {
	Store

	// Follow reports the entries of followed kinds: first all there are, then each that any
	// process changes, in the order of the changes. Every second or so it also reports that
	// nothing changed. It returns when ctx ends or the store fails; a further call starts
	// again with all there are. The followed kinds are set when the store is made; see
	// [KindOf]. Of entries that live for longer than 49 hours, a store may at first report only
	// what changed lately, and of a change only that it happened.
	Follow(ctx context.Context, tell func(Update)) error

	// Now is the time by the store's clock, as of the latest answer that had it, without
	// asking. Gateways date by it what they compare with each other.
	Now() time.Time
}

// An Update is what a [Shared] store reports to a follower.
type Update struct {
	Whole   bool     // what is not in Changes does not exist
	Changes []Change // the oldest first; some may have been reported before

	// Heard is when, by this process's clock, the store was asked: all earlier changes have
	// been reported now.
	Heard time.Time
}

// A Change is an entry as it is after a change.
type Change struct {
	Key     string    // of the entry
	Value   []byte    // nil: it was deleted, or lives for longer than 49 hours
	Expires time.Time // by this process's clock
}

// KindOf returns the kind of a key: what is before its first colon.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// clocked is what a shared store has, and each wrapper around one.
type clocked interface{ Now() time.Time }

// IsShared reports whether several gateways may use a store at once.
func IsShared(s Store) bool {
	_, ok := s.(clocked)
	return ok
}

// Now returns the time by a store's clock if it is shared, and else this process's.
func Now(s Store) time.Time {
	if shared, ok := s.(clocked); ok {
		return shared.Now()
	}
	return time.Now()
}

// Since is [time.Since] by a store's clock.
func Since(s Store, t time.Time) time.Duration { return Now(s).Sub(t) }

// Until is [time.Until] by a store's clock.
func Until(s Store, t time.Time) time.Duration { return t.Sub(Now(s)) }

// An Exporter is a [Store] whose entries can be copied to another.
type Exporter interface {
	// Entries calls tell with every entry, unordered, and with the time that it has left; with some
	// perhaps twice. An entry that changes meanwhile is reported as it was before, as it is after, or
	// both. Entries ends with the first error of tell, which must not call the store.
	Entries(ctx context.Context, tell func(key string, value []byte, ttl time.Duration) error) error
}

// Copyable is a store that `fhir-store copy` copies from or to.
type Copyable interface {
	Store
	Exporter
}

// Outage is a time in which a gateway could not answer, as its store was away or it did not run.
type Outage struct {
	Began time.Time // zero: it is not known, and all that was before Over was in it
	Over  time.Time // zero: there was none
}

// Near reports whether something that happened at a time, and was answered within a while, may
// have lost its answer by the outage: it happened in it, or shortly before.
func (o Outage) Near(at time.Time, while time.Duration) bool {
	return !at.After(o.Over) && at.After(o.Began.Add(-while))
}

// A store that several gateways share announces the changes of the kinds of entries that most
// requests read (see [KindOf]), so that a guarded request needs no round trip.
var (
	// MirroredKinds are those of which each gateway has all entries, at most two days old: what
	// was revoked. That there is none must be known as well.
	MirroredKinds = []string{"revoked", "cutoff"}

	// CachedKinds are those of which each gateway keeps what it has read, until a change is
	// announced: the people of identity providers, and clients that registered themselves.
	CachedKinds = []string{"account", "kept-account", "client"}

	// EndingKinds are those that a full store takes, so that people can always sign out, and
	// clients revoke what they have: what was revoked, and the lists that bound it for each
	// person.
	EndingKinds = []string{"revoked", "cutoff", "revocations", "ended-sessions"}

	// UnboundedKinds are those that a full store of several gateways takes: beside EndingKinds the
	// counts of wrong secrets, of which there is a fixed number.
	UnboundedKinds = append(slices.Clone(EndingKinds), "lockout")
)

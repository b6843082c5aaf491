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

// Store stores data that is used once or can be revoked: codes, sessions, refresh tokens,
// revocations. Keys contain no secrets; see [Key]. A Store is safe for concurrent use and bounded.
// A full store returns [ErrFull] and never drops an unexpired entry: without its revocation, a
// token would be valid again. Package storetest tests implementations.
type Store interface {
	// Put stores value under key for ttl, replacing any previous value.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Add is Put if key is absent, and [ErrExists] otherwise. Exactly one of several concurrent calls succeeds.
	Add(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Get returns the value under key, or [ErrNotFound].
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap is Put if the value of key is old, and [ErrChanged] otherwise. Exactly one of several
	// concurrent calls with the same old value succeeds.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error

	// Take is Get and Delete in one step. Exactly one of several concurrent calls succeeds.
	Take(ctx context.Context, key string) ([]byte, error)

	// Delete removes key, which may be absent.
	Delete(ctx context.Context, key string) error

	// Append appends item to the value under key, which may be absent. The value has a remaining lifetime of at
	// least ttl; a shorter ttl does not shorten it. The error is [ErrTooLong] if the value would exceed maxSize bytes.
	Append(ctx context.Context, key string, item []byte, maxSize int, ttl time.Duration) error

	// List returns the unexpired keys with a prefix, unordered. It may scan all keys.
	List(ctx context.Context, prefix string) ([]string, error)

	// Do executes calls in one atomic step, with one round trip to a remote store: either all
	// succeed, or none has an effect and Do returns the error of the first failed call, also set as
	// [Call.Err]. All calls see the state before the step, but a [Get] may also return a value that
	// another process stored just afterwards. Keys must be distinct. Deletions in a step make room
	// for its additions in a full store.
	Do(ctx context.Context, calls ...*Call) error
}

// Errors of a [Store].
var (
	ErrNotFound = errors.New("entry not found in the store")                // or expired
	ErrExists   = errors.New("entry already exists in the store")           // returned by Add
	ErrChanged  = errors.New("entry was changed concurrently in the store") // returned by Swap
	ErrFull     = error(outageError("store is full"))                       // returned by Put, Add and Append
	ErrTooLong  = errors.New("entry exceeds its maximum length")            // returned by Append

	// ErrUnavailable means that a remote store did not respond in time. A change may have been executed nevertheless.
	ErrUnavailable = error(outageError("store is unreachable"))
)

// An outageError is an error of the store as a whole. The store's breaker logs its start and end.
type outageError string

// Error implements error.
func (o outageError) Error() string { return string(o) }

// LoggedElsewhere prevents logging of each request that fails due to an outage.
func (outageError) LoggedElsewhere() {}

// IsConflict reports whether an error means that a concurrent change won.
func IsConflict(err error) bool { return errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) }

// Key returns the key of an entry without revealing the secret.
func Key(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// An Op is a method of a [Store] in a [Call].
type Op int

// Operations of [Store.Do].
const (
	Get    Op = iota // sets Value; nil if absent, without an error
	Put              // stores Value; the entry expires after TTL
	Add              // stores Value unless Key exists; the entry expires after TTL
	Swap             // replaces Old with Value; the new entry expires after TTL
	Take             // sets Value
	Delete           // deletes Key
	Append           // appends Value, up to Max bytes in total; the entry expires after TTL
)

// String returns the name of the method.
func (o Op) String() string {
	return [...]string{"Get", "Put", "Add", "Swap", "Take", "Delete", "Append"}[o]
}

// A Call is a call in a step of [Store.Do].
type Call struct {
	Op    Op            // operation
	Key   string        // key of the entry
	Old   []byte        // value to replace
	Value []byte        // value to store, or value found
	Max   int           // maximum length of the value in bytes
	TTL   time.Duration // lifetime of the value

	Err error // error of the step if caused by this call
}

// Do executes calls of several stores: consecutive steps of one store form one step. It stops after the first
// failed step, so calls of different stores are not atomic. Changes that are harmless alone should come first.
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

// A Step contains the calls of [Do] for one store.
type Step struct {
	Store Store   // store of the entries
	Calls []*Call // calls of one atomic step
}

// NewStep returns the step of some calls in a store.
func NewStep(s Store, calls ...*Call) Step { return Step{s, calls} }

// ReadValues reads keys in one step; nil for absent keys.
func ReadValues(ctx context.Context, s Store, keys ...string) (values [][]byte, err error) {
	calls := make([]*Call, len(keys))
	for i, key := range keys {
		calls[i] = &Call{Op: Get, Key: key}
	}
	err = Do(ctx, NewStep(s, calls...))
	for _, c := range calls {
		values = append(values, c.Value)
	}
	return values, err
}

// ReplaceCall returns the call that replaces a value as read (nil: absent). It fails after a
// concurrent change; see [IsConflict].
func ReplaceCall(key string, read, value []byte, ttl time.Duration) *Call {
	if read == nil {
		return &Call{Op: Add, Key: key, Value: value, TTL: ttl}
	}
	return &Call{Op: Swap, Key: key, Old: read, Value: value, TTL: ttl}
}

// DeleteCalls returns the calls that delete the entries of keys.
func DeleteCalls(keys ...string) (calls []*Call) {
	for _, key := range keys {
		calls = append(calls, &Call{Op: Delete, Key: key})
	}
	return calls
}

// UpdateValue replaces the value of a key (nil: absent) by the result of do, unless that is nil. After a concurrent change, do
// runs again. It reads in a step, because a gateway's copy may be stale. Further calls are executed in the step that stores the
// value.
func UpdateValue(ctx context.Context, s Store, key string, ttl time.Duration, do func(read []byte) ([]byte, error), extraCalls ...*Call) error {
	for ctx.Err() == nil {
		read, err := ReadValues(ctx, s, key)
		if err != nil {
			return err
		}
		value, err := do(read[0])
		if value == nil || err != nil {
			return err
		}
		if err = s.Do(ctx, append(slices.Clone(extraCalls), ReplaceCall(key, read[0], value, ttl))...); !IsConflict(err) {
			return err
		}
	}
	return ctx.Err()
}

// Forever is the lifetime of entries that should never expire, because stores require a lifetime.
const Forever = 100 * 365 * 24 * time.Hour

// maxRetries limits the attempts of [Retry].
const maxRetries = 20

var errTooManyConflicts = errors.New("too many conflicting store updates by other gateways; try again")

// Retry repeats a change while its error is [IsConflict], i.e. another gateway was faster. The change has
// to read again each time.
func Retry(ctx context.Context, change func() error) error {
	for range maxRetries {
		if err := change(); !IsConflict(err) {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errTooManyConflicts
}

// RunOnce executes do unless that was recorded under key, and reports whether it did. It records execution afterwards: failures and
// lost responses can be retried, and concurrent calls may both execute do. With a full store, do may be executed again.
func RunOnce(ctx context.Context, s Store, key string, ttl time.Duration, do func() error) (executed bool, err error) {
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

// Check sets Err to the error of a call given the stored value of its key, or to nil, and returns
// it. Every implementation of [Store.Do] checks all calls before any change.
func (c *Call) Check(stored []byte, found bool) error {
	c.Err = nil // clear the error of an earlier step
	switch {
	case c.Op == Add && found:
		c.Err = ErrExists
	case c.Op == Swap && (!found || !bytes.Equal(stored, c.Old)):
		c.Err = ErrChanged
	case c.Op == Take && !found:
		c.Err = ErrNotFound
	case c.Op == Append && len(stored)+len(c.Value) > c.Max:
		c.Err = ErrTooLong
	}
	return c.Err
}

// RemovesKey reports whether a call removes its key, which makes room for another call of the step.
func (c *Call) RemovesKey() bool { return c.Op == Take || c.Op == Delete }

// StoresValue reports whether a call leaves a value under its key.
func (c *Call) StoresValue() bool {
	return c.Op == Put || c.Op == Add || c.Op == Swap || c.Op == Append
}

// CallRunner implements single calls by a [Store.Do], each as its own step. Implementations of [Store]
// embed it with their own Do.
type CallRunner func(ctx context.Context, calls ...*Call) error

// Put implements [Store].
func (do CallRunner) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Put, Key: key, Value: value, TTL: ttl})
}

// Add implements [Store].
func (do CallRunner) Add(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Add, Key: key, Value: value, TTL: ttl})
}

// Swap implements [Store].
func (do CallRunner) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error {
	return do(ctx, &Call{Op: Swap, Key: key, Old: old, Value: value, TTL: ttl})
}

// Append implements [Store].
func (do CallRunner) Append(ctx context.Context, key string, item []byte, maxSize int, ttl time.Duration) error {
	return do(ctx, &Call{Op: Append, Key: key, Value: item, Max: maxSize, TTL: ttl})
}

// Get implements [Store].
func (do CallRunner) Get(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Get, Key: key}
	err := do(ctx, c)
	if err == nil && c.Value == nil {
		err = ErrNotFound
	}
	return c.Value, err
}

// Take implements [Store].
func (do CallRunner) Take(ctx context.Context, key string) ([]byte, error) {
	c := &Call{Op: Take, Key: key}
	err := do(ctx, c)
	return c.Value, err
}

// Delete implements [Store].
func (do CallRunner) Delete(ctx context.Context, key string) error {
	return do(ctx, &Call{Op: Delete, Key: key})
}

// A SharedStore serves several gateways at once.
type SharedStore interface {
	Store

	// Subscribe reports the entries of followed kinds: first all existing entries, then each change by any
	// process, in order. About every second it also reports that nothing has changed. It returns when
	// ctx ends or the store fails; the next call starts again with all entries. The followed kinds are
	// set when the store is created; see [KindOf]. For entries with a lifetime above 49 hours, a store
	// may initially report recent changes only, and for changes only the key.
	Subscribe(ctx context.Context, onUpdate func(Update)) error

	// Now returns the time by the store's clock, estimated from its latest response. Gateways use
	// it for times that they compare with each other.
	Now() time.Time
}

// An Update is a report of a [SharedStore] store to a follower.
type Update struct {
	IsComplete bool     // entries not in Changes do not exist
	Changes    []Change // oldest first; may contain changes reported before

	// QueriedAt is the time of the query by this process's clock: all earlier changes have been reported.
	QueriedAt time.Time
}

// A Change is the state of an entry after a change.
type Change struct {
	Key       string    // key of the entry
	Value     []byte    // nil: deleted, or with a lifetime above 49 hours
	ExpiresAt time.Time // by this process's clock
}

// KindOf returns the kind of a key: the part before the first colon.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// serverClock is implemented by shared stores and by every wrapper around one.
type serverClock interface{ Now() time.Time }

// IsShared reports whether several gateways may use a store at once.
func IsShared(s Store) bool {
	_, ok := s.(serverClock)
	return ok
}

// Now returns the time by the store's clock if it is shared, otherwise by this process's clock.
func Now(s Store) time.Time {
	if shared, ok := s.(serverClock); ok {
		return shared.Now()
	}
	return time.Now()
}

// Since is [time.Since] by the store's clock.
func Since(s Store, t time.Time) time.Duration { return Now(s).Sub(t) }

// Until is [time.Until] by the store's clock.
func Until(s Store, t time.Time) time.Duration { return t.Sub(Now(s)) }

// An Exporter is a [Store] that can copy its entries to another.
type Exporter interface {
	// Entries calls yield with every entry and its remaining lifetime, unordered; an entry may be
	// reported twice. An entry that changes during the call is reported in its old state, its new state,
	// or both. Entries stops at the first error of yield, which must not call the store.
	Entries(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error
}

// CopyableStore is a source or target of `fhir-store copy`.
type CopyableStore interface {
	Store
	Exporter
}

// Outage is a period in which a gateway could not respond, because its store was unreachable or the gateway was not running.
type Outage struct {
	StartedAt time.Time // start; zero: unknown, all time before EndedAt counts
	EndedAt   time.Time // end; zero: no outage
}

// MayAffect reports whether the response to an event at a time may have been lost in the outage: the
// event happened in the outage or less than window before it.
func (o Outage) MayAffect(at time.Time, window time.Duration) bool {
	return !at.After(o.EndedAt) && at.After(o.StartedAt.Add(-window))
}

// A shared store broadcasts changes of the kinds of entries that most requests read (see [KindOf]),
// so that a guarded request needs no round trip.
var (
	// MirroredKinds are the kinds copied to each gateway in full, at most two days
	// old: revocations, because their absence must be known as well.
	MirroredKinds = []string{"revoked", "cutoff"}

	// CachedKinds are the kinds that each gateway caches after reading, until a change is
	// broadcast: federated accounts, and clients that registered themselves.
	CachedKinds = []string{"account", "kept-account", "client"}

	// RevocationKinds are the kinds that a full store still accepts, so that logout and revocation
	// always work: revocations, and the lists that limit them per person.
	RevocationKinds = []string{"revoked", "cutoff", "revocations", "ended-sessions"}

	// UnboundedKinds are the kinds that a full shared store still accepts: RevocationKinds and the
	// fixed number of counters of wrong secrets.
	UnboundedKinds = append(slices.Clone(RevocationKinds), "lockout")
)

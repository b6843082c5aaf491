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

// Store stores data that can be used only once or can be revoked: codes, sessions, refresh tokens, revocations. Keys contain no
// secrets; see [Key]. A Store has a limited size and is safe for concurrent use. If it is full, it returns [ErrFull]. It never
// removes an unexpired entry: if a revocation were removed, the token would be valid again. Package storetest contains the
// tests for implementations.
type Store interface {
	// Put stores the value of a key for ttl and replaces the previous value.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Add is like Put, but returns [ErrExists] if the key already exists. Only one of several concurrent calls succeeds.
	Add(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Get returns the value of a key, or [ErrNotFound].
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap replaces the value of a key like Put, but returns [ErrChanged] unless the current value is old. Only one of several
	// concurrent calls with the same old value succeeds.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error

	// Take returns and deletes the value of a key in one step. Only one of several concurrent calls succeeds; the others return
	// [ErrNotFound].
	Take(ctx context.Context, key string) ([]byte, error)

	// Delete deletes a key. A key that does not exist is not an error.
	Delete(ctx context.Context, key string) error

	// Append appends an item to the value of a key, which need not exist. The remaining lifetime of the value becomes at least
	// ttl, but is never shortened. The error is [ErrTooLong] if the value would be longer than maxSize bytes.
	Append(ctx context.Context, key string, item []byte, maxSize int, ttl time.Duration) error

	// List returns the unexpired keys with a prefix, in any order. It may read all keys.
	List(ctx context.Context, prefix string) ([]string, error)

	// Do executes calls in one atomic step, with one round trip to a remote store. Either all calls succeed, or none has an
	// effect. In the latter case, Do returns the error of the first failed call, which is also in [Call.Err]. All calls see the
	// state before the step, but [Get] may also return a value that another process has stored just afterwards. The keys must
	// be distinct. In a full store, deletions in a step free space for its additions.
	Do(ctx context.Context, calls ...*Call) error
}

// Errors of a [Store].
var (
	ErrNotFound = errors.New("entry not found in the store")                // the entry does not exist or has expired
	ErrExists   = errors.New("entry already exists in the store")           // returned by Add
	ErrChanged  = errors.New("entry was changed concurrently in the store") // returned by Swap
	ErrFull     = error(outageError("store is full"))                       // returned by Put, Add and Append
	ErrTooLong  = errors.New("entry exceeds its maximum length")            // returned by Append

	// ErrUnavailable means that a remote store did not respond in time. A change may have been executed.
	ErrUnavailable = error(outageError("store is unreachable"))
)

// An outageError is an error that affects the entire store. The store's breaker logs when it starts and ends.
type outageError string

// Error implements error.
func (o outageError) Error() string { return string(o) }

// LoggedElsewhere prevents an additional log record for each request that fails because of an outage.
func (outageError) LoggedElsewhere() {}

// IsConflict reports whether an error means that another change to the entry came first.
func IsConflict(err error) bool { return errors.Is(err, ErrExists) || errors.Is(err, ErrChanged) }

// Key returns the key of an entry for a secret. The key does not reveal the secret.
func Key(kind, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return kind + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// An Op is the method of a [Store] that a [Call] calls.
type Op int

// Operations of [Store.Do].
const (
	Get    Op = iota // sets Value, or nil if the key does not exist
	Put              // stores Value, which expires after TTL
	Add              // stores Value, which expires after TTL, unless the key exists
	Swap             // replaces Old with Value, which expires after TTL
	Take             // deletes the key and sets Value
	Delete           // deletes the key
	Append           // appends Value, up to Max bytes in total; the entry expires after TTL at the earliest
)

// String returns the name of the method.
func (o Op) String() string {
	return [...]string{"Get", "Put", "Add", "Swap", "Take", "Delete", "Append"}[o]
}

// A Call is one call in a step; see [Store.Do].
type Call struct {
	Op    Op            // method to call
	Key   string        // key of the entry
	Old   []byte        // value to replace
	Value []byte        // value to store, or value that was read
	Max   int           // maximum length of the value in bytes
	TTL   time.Duration // lifetime of the value

	Err error // error of the step, if this call caused it
}

// Do executes calls to several stores. Consecutive steps for the same store are executed as one. Do stops after the first
// failed step. Calls to different stores are not atomic. Changes that are harmless on their own should come first.
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

// A Step contains the calls to one store; see [Do].
type Step struct {
	Store Store   // store of the entries
	Calls []*Call // calls that form one atomic step
}

// NewStep returns a step with calls to a store.
func NewStep(s Store, calls ...*Call) Step { return Step{s, calls} }

// ReadValues reads the values of keys in one step. Values of keys that do not exist are nil.
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

// ReplaceCall returns the call that replaces the value of the given key; read is its current value, nil if the key did not
// exist. It fails if the value has changed since; see [IsConflict].
func ReplaceCall(key string, read, value []byte, ttl time.Duration) *Call {
	if read == nil {
		return &Call{Op: Add, Key: key, Value: value, TTL: ttl}
	}
	return &Call{Op: Swap, Key: key, Old: read, Value: value, TTL: ttl}
}

// DeleteCalls returns the calls that delete keys.
func DeleteCalls(keys ...string) (calls []*Call) {
	for _, key := range keys {
		calls = append(calls, &Call{Op: Delete, Key: key})
	}
	return calls
}

// UpdateValue replaces the value of a key with the result of do. do gets the current value, or nil if there is none. If it
// returns nil, the value remains unchanged. After a concurrent change, do is called again. UpdateValue reads the value in a
// step, because a gateway's copy may be stale. Additional calls are executed in the step that stores the value.
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

// Forever is the lifetime of entries that should never expire. Stores require a lifetime.
const Forever = 100 * 365 * 24 * time.Hour

// maxRetries is the maximum number of attempts of [Retry].
const maxRetries = 20

var errTooManyConflicts = errors.New("too many conflicting store updates by other gateways; try again")

// Retry calls change again while its error is [IsConflict], i.e. while another gateway was faster. change must read the current
// values each time.
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

// RunOnce calls do, unless key is stored, and reports whether it called do. It stores key afterwards. Therefore, failures and
// lost responses can be retried, but concurrent calls may call do more than once. If the store is full, do may be called again
// later.
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

// Check returns the error of a call if stored is the current value of its key, and sets Err to it. Every implementation of
// [Store.Do] checks all calls before it changes anything.
func (c *Call) Check(stored []byte, found bool) error {
	c.Err = nil // remove the error of an earlier step
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

// RemovesKey reports whether a call deletes its key, which frees space for another call in the step.
func (c *Call) RemovesKey() bool { return c.Op == Take || c.Op == Delete }

// StoresValue reports whether the key of a call has a value afterwards.
func (c *Call) StoresValue() bool {
	return c.Op == Put || c.Op == Add || c.Op == Swap || c.Op == Append
}

// CallRunner implements the methods for single calls with [Store.Do]. Each call is one step. Implementations of [Store] embed a
// CallRunner with their Do method.
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

// A SharedStore can be used by several gateways at the same time.
type SharedStore interface {
	Store

	// Subscribe calls onUpdate with all existing entries of the followed kinds, and then with each change by any process, in
	// order. About every second, it also reports if nothing has changed. It returns when ctx is canceled or the store fails;
	// the next call starts again with all entries. The followed kinds are set when the store is created; see [KindOf]. For
	// entries with a lifetime of more than 49 hours, a store may initially report only recent changes, and report only the keys
	// of changes.
	Subscribe(ctx context.Context, onUpdate func(Update)) error

	// Now returns the time of the store's clock, estimated from its latest response. Gateways use it for times that other
	// gateways compare.
	Now() time.Time
}

// An Update is what a [SharedStore] reports to a follower.
type Update struct {
	IsComplete bool     // whether followed entries that are not in Changes do not exist
	Changes    []Change // oldest first; may include changes that were reported before

	// QueriedAt is when the store was queried, by this process's clock. All earlier changes have been reported.
	QueriedAt time.Time
}

// A Change is the state of an entry after it was changed.
type Change struct {
	Key       string    // key of the entry
	Value     []byte    // nil if the entry was deleted or has a lifetime of more than 49 hours
	ExpiresAt time.Time // expiry by this process's clock
}

// KindOf returns the kind of a key: the part before the first colon.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}

// serverClock is implemented by shared stores and their wrappers.
type serverClock interface{ Now() time.Time }

// IsShared reports whether several gateways can use a store at the same time.
func IsShared(s Store) bool {
	_, ok := s.(serverClock)
	return ok
}

// Now returns the time of the store's clock if the store is shared, otherwise of this process's clock.
func Now(s Store) time.Time {
	if shared, ok := s.(serverClock); ok {
		return shared.Now()
	}
	return time.Now()
}

// Since is like [time.Since], but uses the store's clock.
func Since(s Store, t time.Time) time.Duration { return Now(s).Sub(t) }

// Until is like [time.Until], but uses the store's clock.
func Until(s Store, t time.Time) time.Duration { return t.Sub(Now(s)) }

// An Exporter is a [Store] with entries that can be copied to another.
type Exporter interface {
	// Entries calls yield with every entry and its remaining lifetime, in any order. An entry may be reported twice. If an
	// entry changes during the call, the old state, the new state, or both are reported. Entries stops at the first error of
	// yield, which may not call the store.
	Entries(ctx context.Context, yield func(key string, value []byte, ttl time.Duration) error) error
}

// CopyableStore is a store that `fhir-store copy` can copy from or to.
type CopyableStore interface {
	Store
	Exporter
}

// Outage is a period in which a gateway could not respond, because its store was unreachable or the gateway was not running.
type Outage struct {
	StartedAt time.Time // start; zero means unknown: the outage includes all time before EndedAt
	EndedAt   time.Time // end; zero means that there was no outage
}

// MayAffect reports whether an outage may have caused the loss of the response to an event. This is the case if the event
// happened during the outage, or less than window before it.
func (o Outage) MayAffect(at time.Time, window time.Duration) bool {
	return !at.After(o.EndedAt) && at.After(o.StartedAt.Add(-window))
}

// A shared store broadcasts changes to these kinds of entries (see [KindOf]), because most requests read them. As a result, a
// request to the guard needs no round trip.
var (
	// MirroredKinds are the kinds of entries of the last two days that each gateway mirrors completely. These are the
	// revocations, because a gateway must also know that there is none.
	MirroredKinds = []string{"revoked", "cutoff"}

	// CachedKinds are the kinds of entries that each gateway caches after reading them, until a change is broadcast: federated
	// accounts and self-registered clients.
	CachedKinds = []string{"account", "kept-account", "client"}

	// RevocationKinds are the kinds of entries that a full store still accepts, so that logout and revocation always work:
	// revocations, and the lists that limit them per person.
	RevocationKinds = []string{"revoked", "cutoff", "revocations", "ended-sessions"}

	// UnboundedKinds are the kinds of entries that a full shared store still accepts: RevocationKinds, and the counters of
	// wrong secrets, which are fixed in number.
	UnboundedKinds = append(slices.Clone(RevocationKinds), "lockout")
)

package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
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

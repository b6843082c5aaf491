package store

import (
	"context"
	"errors"
	"time"
)

// Store keeps what must be used once or be revocable: codes, sessions, refresh
// tokens, the identifiers of revoked tokens. Keys are made by this package and hold no
// secret: a code or session id is stored under its SHA-256.
//
// A Store is safe for concurrent use, and bounded: it refuses with
// [ErrFull] rather than forget what has not yet expired, because a
// forgotten revocation is a token that works again. Package storetest holds
// the tests that every implementation must pass.
type Store interface {
	// Put stores value under key for ttl, in place of what was there.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Add is Put where key holds nothing, and [ErrExists] where it does; of
	// several at once, exactly one succeeds.
	Add(ctx context.Context, key string, value []byte, ttl time.Duration) error

	// Get returns the value under key, or [ErrNotFound] when there is none or
	// its time is over.
	Get(ctx context.Context, key string) ([]byte, error)

	// Swap is Put where key holds old, and [ErrChanged] where it holds something
	// else or nothing; of several with the same old value, exactly one succeeds.
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) error

	// Take is Get and Delete at once; of several, exactly one succeeds.
	Take(ctx context.Context, key string) ([]byte, error)

	// Delete removes key. That it was not there is no error.
	Delete(ctx context.Context, key string) error

	// List returns the keys that begin with prefix and hold something, in no
	// order. It may take time in proportion to all keys.
	List(ctx context.Context, prefix string) ([]string, error)
}

var (
	// ErrNotFound says that a key holds nothing, or nothing any more.
	ErrNotFound = errors.New("not in the store")

	// ErrExists says that a key already holds something.
	ErrExists = errors.New("already in the store")

	// ErrChanged says that a key no longer holds what it did.
	ErrChanged = errors.New("changed in the store meanwhile")

	// ErrFull says that the store holds as many entries as it may.
	ErrFull = errors.New("the store is full")
)

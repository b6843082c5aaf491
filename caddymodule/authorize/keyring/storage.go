package keyring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Storage is where a [Keyring] keeps its keys.
type Storage interface {
	// Load returns a value, or fs.ErrNotExist.
	Load(ctx context.Context, key string) ([]byte, error)

	// Update replaces a value by what renew makes of it, and returns that. If there is
	// none, renew gets nil. Of several at once, each sees what the one before has stored.
	Update(ctx context.Context, key string, renew func(value []byte) ([]byte, error)) ([]byte, error)

	// IsAuthentic reports whether nobody but our gateways can have made the values. Keys that one
	// of them added are then used beside those in use, and keys that were lost are put back. Else
	// whoever replaced the keys must be asked.
	IsAuthentic() bool

	// Location names the place of a value to the operator.
	Location(key string) string
}

// Locked is a [Storage] whose values are replaced under a lock.
type Locked struct{ LockedStorage }

// LockedStorage is part of Caddy's certmagic.Storage. A missing key is fs.ErrNotExist.
type LockedStorage interface {
	Lock(ctx context.Context, name string) error               // waits until no process holds the name
	Unlock(ctx context.Context, name string) error             // releases it
	Load(ctx context.Context, key string) ([]byte, error)      // returns a value
	Store(ctx context.Context, key string, value []byte) error // stores or replaces it
}

// Update implements [Storage].
func (l Locked) Update(ctx context.Context, key string, renew func([]byte) ([]byte, error)) (renewed []byte, err error) {
	if err := l.Lock(ctx, key); err != nil {
		return nil, fmt.Errorf("locking: %w", err)
	}
	defer func() { err = errors.Join(err, l.Unlock(context.WithoutCancel(ctx), key)) }()
	value, err := l.Load(ctx, key)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	renewed, err = renew(value)
	if err != nil || bytes.Equal(renewed, value) {
		return renewed, err
	}
	return renewed, l.Store(ctx, key, renewed)
}

// IsAuthentic implements [Storage]. Whoever administers a storage may replace its values.
func (Locked) IsAuthentic() bool { return false }

// Location implements [Storage]. It names the file if the values are in files.
func (l Locked) Location(key string) string {
	if files, ok := l.LockedStorage.(interface{ Filename(key string) string }); ok {
		return files.Filename(key)
	}
	return key + " in storage"
}

var _ Storage = Locked{}

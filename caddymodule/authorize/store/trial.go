package store

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// A Cause is the kind of trouble that a store is in, as metrics and GET /fhir/ready name it.
type Cause string

// The causes.
const (
	CauseUnavailable Cause = "unavailable" // it does not answer in time, or takes no changes
	CauseFull        Cause = "full"        // it refuses new entries: [ErrFull]
	CauseRights      Cause = "rights"      // its user may not do all that gateways need
	CauseEviction    Cause = "eviction"    // it drops entries that are in use when its memory is full
	CauseGone        Cause = "gone"        // its file was moved, removed, replaced or damaged
	CauseEmptied     Cause = "emptied"     // it has lost what it held
	CauseVolatile    Cause = "volatile"    // it keeps nothing, or not all, over its own restart
	CauseFailed      Cause = "failed"      // anything else
)

// Causes are all of them.
var Causes = []Cause{CauseUnavailable, CauseFull, CauseRights, CauseEviction, CauseGone, CauseEmptied, CauseVolatile, CauseFailed}

// A Fault is an error of a store with its cause. What takes no changes until somebody sets it right ([CauseRights],
// [CauseGone]) is [ErrUnavailable] to whoever asks, and [CauseFull] is [ErrFull].
type Fault struct {
	Cause Cause // what kind of trouble it is
	Err   error // says what to do
}

// Error implements error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f *Fault) Unwrap() error { return f.Err }

// Is is for [errors.Is].
func (f *Fault) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return f.Cause == CauseRights || f.Cause == CauseGone
	case ErrFull:
		return f.Cause == CauseFull
	}
	return false
}

// CauseOf returns the cause of an error of a store.
func CauseOf(err error) Cause {
	fault, known := errors.AsType[*Fault](err)
	switch {
	case known:
		return fault.Cause
	case errors.Is(err, ErrFull):
		return CauseFull
	case errors.Is(err, ErrUnavailable):
		return CauseUnavailable
	}
	return CauseFailed
}

// trialSize is that of the entry of a [Try]: more than a page of a file.
const trialSize = 8 << 10

// Try finds out whether a store takes what gateways need of it: a new entry, and that it is deleted. One that needs more,
// such as to announce changes, has a method Try that says so.
func Try(ctx context.Context, s Store) error {
	if own, ok := s.(interface {
		Try(ctx context.Context) error
	}); ok {
		return own.Try(ctx)
	}
	key := "trial:" + rand.Text()
	if err := s.Add(ctx, key, make([]byte, trialSize), time.Minute); err != nil {
		return err
	}
	return s.Delete(ctx, key)
}

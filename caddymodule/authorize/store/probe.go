package store

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// A Cause is the kind of a store fault, as shown in metrics and by GET /fhir/ready.
type Cause string

// Causes of store faults.
const (
	CauseUnavailable Cause = "unavailable" // no response in time, or no changes accepted
	CauseFull        Cause = "full"        // new entries are rejected: [ErrFull]
	CausePermissions Cause = "rights"      // the database user lacks required permissions
	CauseEviction    Cause = "eviction"    // entries in use are evicted when the memory is full
	CauseFileLost    Cause = "gone"        // the file was moved, removed, replaced or damaged
	CauseDataLost    Cause = "emptied"     // all data was lost
	CauseVolatile    Cause = "volatile"    // data does not fully survive a restart of the store
	CauseOther       Cause = "failed"      // any other fault
)

// Causes lists all causes.
var Causes = []Cause{CauseUnavailable, CauseFull, CausePermissions, CauseEviction, CauseFileLost, CauseDataLost, CauseVolatile, CauseOther}

// A Fault is an error of a store with its cause. [CausePermissions] and [CauseFileLost], which last until
// repaired, match [ErrUnavailable], and [CauseFull] matches [ErrFull].
type Fault struct {
	Cause Cause // kind of fault
	Err   error // error with the remedy
}

// Error implements error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the error.
func (f *Fault) Unwrap() error { return f.Err }

// Is implements matching by [errors.Is].
func (f *Fault) Is(target error) bool {
	switch target {
	case ErrUnavailable:
		return f.Cause == CausePermissions || f.Cause == CauseFileLost
	case ErrFull:
		return f.Cause == CauseFull
	}
	return false
}

// CauseOf returns the cause of a store error.
func CauseOf(err error) Cause {
	fault, unavailable := errors.AsType[*Fault](err)
	switch {
	case unavailable:
		return fault.Cause
	case errors.Is(err, ErrFull):
		return CauseFull
	case errors.Is(err, ErrUnavailable):
		return CauseUnavailable
	}
	return CauseOther
}

// probeSize is the size of the entry of a [Probe]: more than a page of a file.
const probeSize = 8 << 10

// Probe tests whether a store accepts and deletes a new entry. Stores with further requirements, e.g.
// broadcasting changes, implement their own method Probe.
func Probe(ctx context.Context, s Store) error {
	if own, ok := s.(interface {
		Probe(ctx context.Context) error
	}); ok {
		return own.Probe(ctx)
	}
	key := "trial:" + rand.Text()
	if err := s.Add(ctx, key, make([]byte, probeSize), time.Minute); err != nil {
		return err
	}
	return s.Delete(ctx, key)
}

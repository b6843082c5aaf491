package store

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// A Cause is the cause of a store fault, as shown in metrics and by GET /fhir/ready.
type Cause string

// Causes of store faults.
const (
	CauseUnavailable Cause = "unavailable" // the store does not respond in time or accepts no changes
	CauseFull        Cause = "full"        // new entries are rejected: [ErrFull]
	CausePermissions Cause = "rights"      // the database user lacks required permissions
	CauseEviction    Cause = "eviction"    // the store evicts entries in use when its memory is full
	CauseFileLost    Cause = "gone"        // the file was moved, removed, replaced or damaged
	CauseDataLost    Cause = "emptied"     // all data was lost
	CauseVolatile    Cause = "volatile"    // data does not fully survive a restart of the store
	CauseOther       Cause = "failed"      // any other fault
)

// Causes lists all values of [Cause].
var Causes = []Cause{CauseUnavailable, CauseFull, CausePermissions, CauseEviction, CauseFileLost, CauseDataLost, CauseVolatile, CauseOther}

// A Fault is a store error with its cause. It matches [ErrUnavailable] if the cause is [CausePermissions] or [CauseFileLost],
// because the store is unusable until it is repaired, and [ErrFull] if the cause is [CauseFull].
type Fault struct {
	Cause Cause // cause of the fault
	Err   error // error, including the remedy
}

// Error implements error.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the error without the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Is makes [errors.Is] match a fault by its cause.
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

// probeSize is the size in bytes of the entry that [Probe] writes. It is larger than a page of a file.
const probeSize = 8 << 10

// Probe tests whether a store can add and delete an entry. Stores with additional requirements, e.g. that changes are
// broadcast, implement a method Probe, which is called instead.
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

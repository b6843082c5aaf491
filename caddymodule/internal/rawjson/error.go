package rawjson

import (
	"errors"
	"fmt"
)

// What can be wrong, apart from the place. Each comes in an [Error].
var (
	// ErrSyntax is returned for what is not JSON.
	ErrSyntax = errors.New("invalid JSON")

	// ErrDuplicate is returned for an object that has a name twice.
	ErrDuplicate = errors.New("duplicate name in an object")

	// ErrDepth is returned for what is nested deeper than MaxDepth.
	ErrDepth = errors.New("objects and arrays nested too deep")

	// ErrKind is returned for a value of another kind than was asked for.
	ErrKind = errors.New("wrong kind of value")

	// ErrNotRead is returned when a function has not read the value that it was called for.
	ErrNotRead = errors.New("value was not read")
)

// Error is what is wrong with a text, and where.
type Error struct {
	// Offset is how many bytes precede the fault.
	Offset int

	// Err is, or wraps, one of the errors of this package.
	Err error
}

// Error says what is wrong, and at which byte.
func (e *Error) Error() string { return fmt.Sprintf("%v at byte %d", e.Err, e.Offset) }

// Unwrap returns what is wrong without the place.
func (e *Error) Unwrap() error { return e.Err }

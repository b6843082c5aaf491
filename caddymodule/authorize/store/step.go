package store

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"
)

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

package store

import (
	"bytes"
	"slices"
	"time"
)

// A Table holds the entries of a store of a single process, which makes steps in it by [Room.Do].
type Table interface {
	Held(key string) (value []byte, found bool)            // what has not expired; it is not changed
	Left(key string) time.Duration                         // lifetime of a value that was found
	Set(key string, value []byte, ttl time.Duration) error // copies the value
	Remove(key string) error                               // of a key that need not exist
	Size() int                                             // entries, with expired ones
	Sweep() error                                          // removes what has expired
}

// Room says whether a step fits into a store of a single process. What one person can store
// is bounded; but if a store is full all the same, people must be able to sign out, and clients
// to revoke what they have. So entries of the kinds that end something have an eighth more.
type Room struct {
	Max     int      // entries
	Endings []string // kinds that end something; see [KindOf]
}

// Do makes all calls or none: all is checked before anything changes. The caller holds a lock.
func (r Room) Do(t Table, calls []*Call) error {
	added, ordinary := 0, false // whether something is added that ends nothing
	for _, c := range calls {
		if c.Op == Get { // it always succeeds, and is looked up once
			c.Err = nil
			continue
		}
		held, found := t.Held(c.Key)
		if err := c.Check(held, found); err != nil {
			return err
		}
		switch {
		case c.Removes() && found:
			added--
		case c.Stores() && !found: // an expired entry counts until it is swept
			added++
			ordinary = ordinary || !slices.Contains(r.Endings, KindOf(c.Key))
		}
	}
	if err := r.check(t, calls, added, ordinary); err != nil {
		return err
	}
	for _, c := range calls {
		if err := c.make(t); err != nil {
			return err
		}
	}
	return nil
}

// check fails with [ErrFull] if there is no room for a step, after a sweep if need be.
func (r Room) check(t Table, calls []*Call, added int, ordinary bool) error {
	most := r.Max
	if !ordinary {
		most += r.Max/8 + 8
	}
	fits := func() bool { return added <= 0 || t.Size()+added <= most }
	if fits() {
		return nil
	}
	if err := t.Sweep(); err != nil || fits() {
		return err
	}
	for _, c := range calls {
		if _, found := t.Held(c.Key); c.Stores() && !found {
			c.Err = ErrFull
		}
	}
	return ErrFull
}

// make makes a call that succeeds, unless the table fails.
func (c *Call) make(t Table) error {
	held, found := t.Held(c.Key)
	switch c.Op {
	case Put, Add, Swap:
		return t.Set(c.Key, c.Value, c.TTL)
	case Append:
		ttl := c.TTL
		if found {
			ttl = max(ttl, t.Left(c.Key))
		}
		return t.Set(c.Key, slices.Concat(held, c.Value), ttl)
	case Delete:
		return t.Remove(c.Key)
	}
	if c.Value = bytes.Clone(held); c.Op == Take { // the table's own memory may change
		return t.Remove(c.Key)
	}
	return nil
}

package boltstore

import (
	"bytes"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// do makes all calls or none. The transaction may hold others' writes, so it cannot be
// rolled back: all is checked before anything changes.
func (t transaction) do(calls []*store.Call) error {
	var added int64
	for _, c := range calls {
		held, found := t.get(c.Key)
		if err := c.Check(held, found); err != nil {
			return err
		}
		if c.Err = checkKey(c); c.Err != nil {
			return c.Err
		}
		switch { // an expired entry counts until it is swept
		case c.Removes() && found:
			added--
		case c.Stores() && !found:
			added++
		}
	}
	if err := t.checkRoom(calls, added); err != nil {
		return err
	}
	for _, c := range calls {
		if err := t.make(c); err != nil {
			return err
		}
	}
	return nil
}

// checkKey refuses a key that bbolt cannot store.
func checkKey(c *store.Call) error {
	if c.Stores() && (c.Key == "" || len(c.Key)+expirySize > bbolt.MaxKeySize) {
		return fmt.Errorf("a key of %d bytes", len(c.Key))
	}
	return nil
}

// checkRoom fails with [store.ErrFull] if there is no room for so many new entries after the
// expired ones have been removed.
func (t transaction) checkRoom(calls []*store.Call, added int64) error {
	if added <= 0 || t.held()+added <= t.max {
		return nil
	}
	if err := t.sweep(true); err != nil {
		return err
	}
	if t.held()+added <= t.max {
		return nil
	}
	for _, c := range calls {
		if _, found := t.get(c.Key); c.Stores() && !found {
			c.Err = store.ErrFull
		}
	}
	return store.ErrFull
}

// make makes a call that succeeds, unless the file fails.
func (t transaction) make(c *store.Call) error {
	held, _ := t.get(c.Key)
	switch c.Op {
	case store.Get:
		c.Value = bytes.Clone(held) // bbolt's own memory ends with the transaction
	case store.Put, store.Add, store.Swap:
		return t.put(c.Key, c.Value, c.TTL)
	case store.Append:
		return t.put(c.Key, slices.Concat(held, c.Value), c.TTL)
	case store.Take:
		c.Value = bytes.Clone(held)
		return t.remove(c.Key)
	case store.Delete:
		return t.remove(c.Key)
	}
	return nil
}

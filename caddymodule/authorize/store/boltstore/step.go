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
	room := store.Room{Max: int(t.max), Endings: t.endings}
	for _, c := range calls {
		held, found := t.get(c.Key)
		if err := c.Check(held, found); err != nil {
			return err
		}
		if c.Err = checkKey(c); c.Err != nil {
			return c.Err
		}
		room.Count(c, found) // an expired entry counts until it is swept
	}
	if err := t.checkRoom(calls, &room); err != nil {
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

// checkRoom fails with [store.ErrFull] if there is no room for a step after the expired entries
// have been removed.
func (t transaction) checkRoom(calls []*store.Call, room *store.Room) error {
	if room.Fits(int(t.held())) {
		return nil
	}
	if err := t.sweep(true); err != nil {
		return err
	}
	if room.Fits(int(t.held())) {
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

package boltstore

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// do makes all calls or none. The transaction may hold others' writes, so it cannot be
// rolled back: all is checked before anything changes.
func (t transaction) do(calls []*store.Call) error {
	for _, c := range calls {
		if c.Err = checkKey(c); c.Err != nil {
			return c.Err
		}
	}
	return store.Room{Max: int(t.max), Endings: t.endings}.Do(t, calls)
}

// checkKey refuses a key that bbolt cannot store.
func checkKey(c *store.Call) error {
	if c.Stores() && (c.Key == "" || len(c.Key)+expirySize > bbolt.MaxKeySize) {
		return fmt.Errorf("a key of %d bytes", len(c.Key))
	}
	return nil
}

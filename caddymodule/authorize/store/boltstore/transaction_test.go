package boltstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
)

// Storing an entry again with the same expiry, as for refresh tokens, does not write pages of the expiries bucket.
func TestSameEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(filepath.Join(t.TempDir(), "store.db"), 0)
		defer s.Close()
		put := func(key string, ttl time.Duration) (order uint64) {
			if err := s.Put(t.Context(), key, []byte("value"), ttl); err != nil {
				t.Fatal(err)
			}
			// bbolt copies changed pages and their ancestors, so a change would have moved the root.
			err := s.file.Load().db.View(func(tx *bbolt.Tx) error { order = uint64(tx.Bucket(expiriesBucket).Root()); return nil })
			if err != nil {
				t.Fatal(err)
			}
			return order
		}
		var before uint64
		for i := range 200 { // more entries than fit on one page of a bucket
			before = put(fmt.Sprintf("refresh:%d", i), time.Hour+time.Millisecond)
		}
		if before == 0 {
			t.Fatal("the bucket has no page of its own")
		}
		time.Sleep(10*time.Minute + time.Microsecond)
		if put("refresh:100", 50*time.Minute+time.Millisecond) != before {
			t.Error("written anew")
		}
		if put("refresh:100", time.Hour) == before {
			t.Error("another end is not written")
		}
	})
}

package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// If a file is truncated during a read, the read returns an error and the process does not crash.
func TestTruncatedDuringRead(t *testing.T) {
	t.Parallel()
	f, err := openBolt(filepath.Join(t.TempDir(), "store.db"), &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	err = f.view(func(tx *bbolt.Tx) error {
		if err := os.Truncate(f.path, 0); err != nil {
			return err
		}
		return tx.Bucket(entriesBucket).ForEach(func(_, _ []byte) error { return nil })
	})
	if !errors.Is(err, errDamaged) {
		t.Error(err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
}

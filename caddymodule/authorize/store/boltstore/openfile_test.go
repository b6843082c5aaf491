package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// Truncation of a file during a read results in an error and does not end the process.
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

//go:build unix && !aix && !illumos && !solaris

package boltstore

import (
	"os"
	"syscall"
)

// unlock releases bbolt's file lock. Closing the file does not release it while the file is mapped.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

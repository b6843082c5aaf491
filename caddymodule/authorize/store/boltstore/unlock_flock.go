//go:build unix && !aix && !illumos && !solaris

package boltstore

import (
	"os"
	"syscall"
)

// unlock releases bbolt's lock, which closing the file does not do while it is mapped.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

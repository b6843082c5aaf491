//go:build unix && !aix && !illumos && !solaris

package boltstore

import (
	"os"
	"syscall"
)

// unlock takes bbolt's lock from a file. Closing the file is not enough where its mapping
// stays.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

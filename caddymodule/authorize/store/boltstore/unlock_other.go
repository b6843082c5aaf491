//go:build !unix || aix || illumos || solaris

package boltstore

import "os"

// unlock does nothing, because closing the file releases the lock.
func unlock(*os.File) error { return nil }

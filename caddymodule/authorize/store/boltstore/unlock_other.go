//go:build !unix || aix || illumos || solaris

package boltstore

import "os"

// unlock does nothing: the lock goes when the file is closed.
func unlock(*os.File) error { return nil }

//go:build unix

package terminology

import "golang.org/x/sys/unix"

// mapped returns memory that is of no file, or nil if the system has none to give.
func mapped(size int) []byte {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil // the heap will do
	}
	return region
}

// unmap gives mapped memory back.
func unmap(region []byte) {
	_ = unix.Munmap(region) // of a region that was mapped whole, it cannot fail
}

//go:build unix

package offheap

import "golang.org/x/sys/unix"

// mapRegion returns anonymous memory, or nil if mapping fails.
func mapRegion(size int) []byte {
	region, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil // the array stays on the heap
	}
	return region
}

func unmapRegion(region []byte) {
	_ = unix.Munmap(region) // cannot fail because the full region is mapped
}

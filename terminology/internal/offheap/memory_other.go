//go:build !unix

package offheap

// mapped returns nil: arrays stay on the heap on systems without mmap.
func mapped(int) []byte { return nil }

func unmap([]byte) {}

//go:build !unix

package offheap

// mapped returns nil: without mmap, arrays stay on the heap.
func mapped(int) []byte { return nil }

func unmap([]byte) {}

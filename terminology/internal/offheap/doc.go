// Package offheap keeps large arrays without pointers outside the garbage-collected heap.
//
//	memory.go         the regions of one owner: arrays move in, and are freed when the owner is collected
//	memory_unix.go    anonymous mappings
//	memory_other.go   no mappings: arrays stay on the heap
package offheap

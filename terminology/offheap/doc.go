// Package offheap keeps large arrays without pointers outside of the garbage-collected heap.
//
//	memory.go         the regions of one owner: arrays are moved in, and given back when the owner is collected
//	memory_unix.go    anonymous mappings
//	memory_other.go   none: arrays stay on the heap
package offheap

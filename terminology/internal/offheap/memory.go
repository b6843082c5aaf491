// Package offheap keeps large arrays without pointers outside the garbage-collected heap.
//
//	memory.go         the regions of one owner: arrays move in, and are freed when the owner is collected
//	memory_unix.go    anonymous mappings
//	memory_other.go   no mappings: arrays stay on the heap
package offheap

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Memory is a list of regions outside the garbage-collected heap. On the heap, large arrays would let the collector
// wait for as much garbage again, and so take twice their size.
//
// The collector does not see who reads a region: an array in it must not be read once its owner is gone (see [Own]).
type Memory struct{ regions [][]byte }

var mappedBytes atomic.Int64

// InUse returns the number of bytes outside the heap.
func InUse() int64 { return mappedBytes.Load() }

// Smallest is the size in bytes from which on an array gets a region, which is whole pages.
const Smallest = 64 << 10

// scalar is an element without pointers.
type scalar interface {
	~bool | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32
}

// Own releases m when owner is collected. Whoever reads an array in m must keep owner alive meanwhile.
func Own[T any](owner *T, m *Memory) {
	runtime.AddCleanup(owner, (*Memory).Release, m)
}

// Release frees all regions.
func (m *Memory) Release() {
	for _, region := range m.regions {
		mappedBytes.Add(-int64(len(region)))
		unmap(region)
	}
	m.regions = nil
}

// Regions returns the number of regions.
func (m *Memory) Regions() int { return len(m.regions) }

// Take returns a zeroed region of at least size bytes, or nil if the system has none. Pages never written take no
// memory.
func (m *Memory) Take(size int) []byte {
	region := mapped(size)
	if region != nil {
		mappedBytes.Add(int64(size))
		m.regions = append(m.regions, region)
	}
	return region
}

// Move moves arrays that are large enough into m.
func Move[T scalar](m *Memory, lists ...*[]T) {
	for _, list := range lists {
		size := len(*list) * int(unsafe.Sizeof(*new(T)))
		if size < Smallest {
			continue
		}
		if region := m.Take(size); region != nil {
			own := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(region))), len(*list))
			copy(own, *list)
			*list = own
		}
	}
}

// Grow returns text with room for more bytes. m must hold nothing but text.
func (m *Memory) Grow(text []byte, more int) []byte {
	var next Memory
	region := next.Take(len(text) + more)
	if region == nil {
		return text
	}
	copy(region, text)
	text = region[:len(text)]
	m.Release()
	*m = next
	return text
}

// Holds reports whether text lies in m, rather than where append moved it on the heap.
func (m *Memory) Holds(text []byte) bool {
	return len(m.regions) > 0 && unsafe.SliceData(m.regions[0]) == unsafe.SliceData(text)
}

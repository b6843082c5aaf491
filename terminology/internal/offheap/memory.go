// Package offheap stores large arrays without pointers outside the garbage-collected heap.
//
//	memory.go         regions of an owner: arrays are moved in, and freed when the owner is collected
//	memory_unix.go    anonymous mappings
//	memory_other.go   no mappings: arrays stay on the heap
package offheap

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Memory is a list of memory regions outside the garbage-collected heap. On the heap, large arrays would use twice their size,
// because the collector does not run until as much garbage has accumulated.
//
// The collector does not track uses of regions: arrays must not be read after [ReleaseWhenCollected] has released them.
type Memory struct{ regions [][]byte }

var mappedBytes atomic.Int64

// BytesInUse returns the total size of all regions in bytes.
func BytesInUse() int64 { return mappedBytes.Load() }

// MinSize is the minimum size in bytes of an array that is moved to a region. A region consists of whole pages.
const MinSize = 64 << 10

// scalar is an element type without pointers.
type scalar interface {
	~bool | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32
}

// ReleaseWhenCollected releases m after owner has been collected. Code that reads an array in m must keep owner reachable.
func ReleaseWhenCollected[T any](owner *T, m *Memory) {
	runtime.AddCleanup(owner, (*Memory).Release, m)
}

// Release frees all regions.
func (m *Memory) Release() {
	for _, region := range m.regions {
		mappedBytes.Add(-int64(len(region)))
		unmapRegion(region)
	}
	m.regions = nil
}

// Regions returns the number of regions in m.
func (m *Memory) Regions() int { return len(m.regions) }

// Allocate returns a zeroed region of at least size bytes, or nil if mapping fails. Pages use no memory until they are written.
func (m *Memory) Allocate(size int) []byte {
	region := mapRegion(size)
	if region != nil {
		mappedBytes.Add(int64(size))
		m.regions = append(m.regions, region)
	}
	return region
}

// Move moves the arrays that have at least MinSize bytes into m.
func Move[T scalar](m *Memory, lists ...*[]T) {
	for _, list := range lists {
		size := len(*list) * int(unsafe.Sizeof(*new(T)))
		if size < MinSize {
			continue
		}
		if region := m.Allocate(size); region != nil {
			own := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(region))), len(*list))
			copy(own, *list)
			*list = own
		}
	}
}

// Grow moves text to a region with capacity for more additional bytes. m must not contain any other array.
func (m *Memory) Grow(text []byte, more int) []byte {
	var next Memory
	region := next.Allocate(len(text) + more)
	if region == nil {
		return text
	}
	copy(region, text)
	text = region[:len(text)]
	m.Release()
	*m = next
	return text
}

// Contains reports whether text is still in m. append may have moved it to the heap.
func (m *Memory) Contains(text []byte) bool {
	return len(m.regions) > 0 && unsafe.SliceData(m.regions[0]) == unsafe.SliceData(text)
}

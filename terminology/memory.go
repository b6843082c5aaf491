package terminology

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// memory is where the arrays of a large code system and of its index are, outside of the heap of Go's garbage
// collector. On the heap, it would let as much garbage come together as there is in them, so that they would
// take twice their size; and they may be mapped from a file one day.
//
// The arrays must not be used when what owns the memory is gone: a [Handler] sees to it that the library of a
// request, and [searchIndex] that the index stays until the answer is written.
type memory struct{ regions [][]byte }

// offHeap is how much memory there is off the heap, in bytes.
var offHeap atomic.Int64

// smallest is from how many bytes on an array gets a region, which is whole pages.
const smallest = 64 << 10

// scalar is what arrays without pointers are made of.
type scalar interface {
	~bool | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32
}

// owned lets memory go when its owner is.
func owned[T any](owner *T, m *memory) {
	runtime.AddCleanup(owner, (*memory).release, m)
}

// release gives all regions back.
func (m *memory) release() {
	for _, region := range m.regions {
		offHeap.Add(-int64(len(region)))
		unmap(region)
	}
	m.regions = nil
}

// take returns a region of at least so many bytes, all zero, or nil where there is none to be had. What is not
// written to takes up no memory.
func (m *memory) take(size int) []byte {
	region := mapped(size)
	if region != nil {
		offHeap.Add(int64(size))
		m.regions = append(m.regions, region)
	}
	return region
}

// settle moves arrays into memory.
func settle[T scalar](m *memory, lists ...*[]T) {
	for _, list := range lists {
		size := len(*list) * int(unsafe.Sizeof(*new(T)))
		if size < smallest {
			continue
		}
		if region := m.take(size); region != nil {
			own := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(region))), len(*list))
			copy(own, *list)
			*list = own
		}
	}
}

// grown returns texts with room for more, in memory that holds nothing else.
func (m *memory) grown(t texts, more int) texts {
	var next memory
	region := next.take(len(t) + more)
	if region == nil {
		return t
	}
	copy(region, t)
	t = region[:len(t)]
	m.release()
	*m = next
	return t
}

// holds reports whether texts are in memory, and not on the heap since appending to them took more than there
// was room for.
func (m *memory) holds(t texts) bool {
	return len(m.regions) > 0 && unsafe.SliceData(m.regions[0]) == unsafe.SliceData(t)
}

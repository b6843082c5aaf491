package offheap

import (
	"runtime"
	"slices"
	"testing"
)

func TestSettle(t *testing.T) {
	m := new(Memory)
	long, short := make([]uint32, MinSize), make([]uint32, 3)
	for i := range long {
		long[i] = uint32(i)
	}
	want, before := slices.Clone(long), &long[0]
	Move(m, &long, &short)
	if !slices.Equal(long, want) || len(short) != 3 {
		t.Error("content has changed")
	}
	if mapsMemory() && (&long[0] == before || len(m.regions) != 1) {
		t.Errorf("%d regions, want 1 for the long list", len(m.regions))
	}
	m.Release()
	if m.regions != nil {
		t.Error("regions left")
	}
}

func TestMemoryGrows(t *testing.T) {
	var m Memory
	defer m.Release()
	list := []byte("first")
	for range 3 {
		list = append(m.Grow(list, 10), " next"...)
	}
	if got := string(list); got != "first next next next" {
		t.Errorf("got %q", got)
	}
	if len(m.regions) > 1 {
		t.Errorf("%d regions, want that of the last growth alone", len(m.regions))
	}
	if len(m.regions) == 1 && !m.Contains(list) {
		t.Error("not in memory")
	}
	if m.Contains(append(list, make([]byte, 1<<20)...)) {
		t.Error("contains data that has moved to the heap")
	}
}

// TestMemoryIsReleased checks that memory is released after its owner is collected.
func TestMemoryIsReleased(t *testing.T) {
	before := BytesInUse()
	owner, m := new([100]byte), new(Memory)
	m.Allocate(1 << 20)
	ReleaseWhenCollected(owner, m)
	runtime.GC()
	if mapsMemory() && len(m.regions) != 1 {
		t.Fatal("released too soon")
	}
	runtime.KeepAlive(owner)
	for BytesInUse() > before { // the cleanup runs some time after the garbage collection
		runtime.GC()
	}
}

// mapsMemory reports whether the operating system supports off-heap memory.
func mapsMemory() bool {
	region := mapRegion(1)
	if region == nil {
		return false
	}
	unmapRegion(region)
	return true
}

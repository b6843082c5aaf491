package snomed

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
)

// none is the number of a component that the edition does not contain.
const none = ^uint32(0)

// idIndex numbers identifiers in the order in which they are added. It is a hash table of numbers plus one with open addressing.
type idIndex struct {
	ids   []sctid
	slots []uint32
}

// slot returns the slot with an identifier, or the free slot for it.
func (x *idIndex) slot(id sctid) uint32 {
	mask := uint32(len(x.slots) - 1)
	at := uint32(uint64(id)*0x9E3779B97F4A7C15>>32) & mask
	for x.slots[at] != 0 && x.ids[x.slots[at]-1] != id {
		at = (at + 1) & mask
	}
	return at
}

// add adds an identifier. It returns false if it was added before.
func (x *idIndex) add(id sctid) (isNew bool) {
	if 3*len(x.ids) >= 2*len(x.slots) {
		x.grow()
	}
	at := x.slot(id)
	if x.slots[at] != 0 {
		return false
	}
	x.ids = append(x.ids, id)
	x.slots[at] = uint32(len(x.ids))
	return true
}

func (x *idIndex) grow() {
	x.slots = make([]uint32, max(1<<bits.Len(uint(2*len(x.ids))), 1024))
	for i, id := range x.ids {
		x.slots[x.slot(id)] = uint32(i + 1)
	}
}

// find returns the number of an identifier, or none.
func (x *idIndex) find(id sctid) uint32 {
	if len(x.slots) == 0 {
		return none
	}
	return x.slots[x.slot(id)] - 1 // none is one less than the 0 of a free slot
}

// moduleIndex numbers modules. It is safe for concurrent use, because files are read at the same time.
type moduleIndex struct {
	mu      sync.Mutex
	ids     []sctid
	numbers map[sctid]uint16
}

// add returns the number of a module.
func (m *moduleIndex) add(id sctid) (uint16, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number, ok := m.numbers[id]; ok {
		return number, nil
	}
	if len(m.ids) > math.MaxUint16 {
		return 0, fmt.Errorf("more than %d modules", math.MaxUint16)
	}
	if m.numbers == nil {
		m.numbers = make(map[sctid]uint16)
	}
	m.numbers[id] = uint16(len(m.ids))
	m.ids = append(m.ids, id)
	return m.numbers[id], nil
}

// groupByOwner sorts rows by their n owners. Rows order[from[i]:from[i+1]] belong to owner i, in their original order.
func groupByOwner(n int, owners []uint32) (from, order []uint32) {
	return table.SortByOwner(n, len(owners), func(row int) (owner, value uint32) { return owners[row], uint32(row) })
}

// findOwner returns the rows of an owner in sorted owners.
func findOwner(owners []uint32, owner uint32) (from, to int) {
	from, _ = slices.BinarySearch(owners, owner)
	for to = from; to < len(owners) && owners[to] == owner; to++ {
	}
	return from, to
}

// permute returns the values in the given order.
func permute[T any](values []T, order []uint32) []T {
	sorted := make([]T, len(order))
	for i, from := range order {
		sorted[i] = values[from]
	}
	return sorted
}

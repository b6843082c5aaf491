package textindex

import (
	"encoding/binary"
	"math"
	"sort"
)

// keyLength is how many bytes of a text are in its key.
const keyLength = 8

// prefixKey returns the first bytes of words as a number that is in the same order as they are.
func prefixKey(words []byte) uint64 {
	var b [keyLength]byte
	copy(b[:], words)
	return binary.BigEndian.Uint64(b[:])
}

// lastKey returns the last key of what begins with words, or with as much of them as a key has.
func lastKey(words []byte) uint64 {
	return prefixKey(words) | math.MaxUint64>>(8*min(len(words), keyLength))
}

// sortedKeys are keys in ascending order. Each of the first few steps of a search through many would wait for
// memory, so that every 64th stands in a list of its own, which is small enough to be mostly in a cache.
type sortedKeys struct{ all, every []uint64 }

// stride is how many keys there are to one of sortedKeys.every.
const stride = 64

// newSortedKeys returns keys that are in order.
func newSortedKeys(all []uint64) sortedKeys {
	k := sortedKeys{all: all}
	for i := 0; i < len(all); i += stride {
		k.every = append(k.every, all[i])
	}
	return k
}

// from returns the place of the first key that is not below another.
func (k *sortedKeys) from(key uint64) int {
	block := sort.Search(len(k.every), func(i int) bool { return k.every[i] >= key })
	low, high := around(block, len(k.all))
	return low + sort.Search(high-low, func(i int) bool { return k.all[low+i] >= key })
}

// beyond returns the place of the first key above another.
func (k *sortedKeys) beyond(key uint64) int {
	if key == math.MaxUint64 {
		return len(k.all)
	}
	return k.from(key + 1)
}

// around returns the range in a list of n in which the place sought is, or which it is the end of, where the
// first of every stride that is not before it is that of a block.
func around(block, n int) (low, high int) {
	return max(0, (block-1)*stride+1), min(block*stride, n)
}

package textindex

import (
	"encoding/binary"
	"math"
	"sort"
)

// keyLength is how many bytes of a text its key holds.
const keyLength = 8

// prefixKey returns the first bytes of words as a number that orders as they do.
func prefixKey(words []byte) uint64 {
	var b [keyLength]byte
	copy(b[:], words)
	return binary.BigEndian.Uint64(b[:])
}

// lastKey returns the last key of texts that begin with words, or with as much of them as a key holds.
func lastKey(words []byte) uint64 {
	return prefixKey(words) | math.MaxUint64>>(8*min(len(words), keyLength))
}

// textOrder is ranks in the order of a text of their documents, with the key of each, so that most texts need not be
// folded again. The first few steps of a search through many keys would each wait for memory: every 64th is also in a
// list of its own, small enough to stay in a cache.
type textOrder struct {
	ranks       []uint32
	keys, every []uint64
}

// stride is how many keys there are to one of textOrder.every.
const stride = 64

// newTextOrder returns the order of sorted ranks, with their keys.
func newTextOrder(ranks []uint32, keys []uint64) textOrder {
	o := textOrder{ranks: ranks, keys: keys}
	for i := 0; i < len(keys); i += stride {
		o.every = append(o.every, keys[i])
	}
	return o
}

// from returns the position of the first key that is not below key.
func (o *textOrder) from(key uint64) int {
	return sampledSearch(o.every, len(o.keys), key, func(i int) bool { return o.keys[i] >= key })
}

// beyond returns the position of the first key above key.
func (o *textOrder) beyond(key uint64) int {
	if key == math.MaxUint64 {
		return len(o.keys)
	}
	return o.from(key + 1)
}

// sampledSearch is [sort.Search] in a list of n sorted by keys, of which every holds each strideth. It must be that is
// holds for all items with a higher key than key, and for none with a lower one.
func sampledSearch(every []uint64, n int, key uint64, is func(i int) bool) int {
	block := sort.Search(len(every), func(i int) bool { return every[i] > key || every[i] == key && is(i*stride) })
	low, high := max(0, (block-1)*stride+1), min(block*stride, n)
	return low + sort.Search(high-low, func(i int) bool { return is(low + i) })
}

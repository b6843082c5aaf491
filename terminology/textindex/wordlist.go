package textindex

import (
	"bytes"
	"encoding/binary"
	"math"
	"sort"
)

// span is a range of words of a list.
type span struct{ from, to int }

// wordList is a sorted list of words: word i is text[from[i]:from[i+1]]. The first few steps of a search through many
// words would each wait for memory: the key of every strideth word is also in a list of its own, small enough to stay in a
// cache.
type wordList struct {
	text  []byte
	from  []uint32
	every []uint64
}

// stride is how many words or hashes there are to one in a list of every strideth.
const stride = 64

// add adds a word that comes after all others.
func (w *wordList) add(word []byte) {
	if len(w.from) == 0 {
		w.from = append(w.from, 0)
	}
	if w.len()%stride == 0 {
		w.every = append(w.every, prefixKey(word))
	}
	w.text = append(w.text, word...)
	w.from = append(w.from, uint32(len(w.text)))
}

func (w *wordList) len() int { return max(len(w.from), 1) - 1 }

func (w *wordList) at(i int) []byte { return w.text[w.from[i]:w.from[i+1]] }

func (w *wordList) bytes() int { return len(w.text) + 4*len(w.from) + 8*len(w.every) }

// find returns the position of a word.
func (w *wordList) find(word []byte) (i int, ok bool) {
	i = w.notBefore(word)
	return i, i < w.len() && bytes.Equal(w.at(i), word)
}

// notBefore returns the position of the first word that is not before another.
func (w *wordList) notBefore(word []byte) int {
	return sampledSearch(w.every, w.len(), prefixKey(word), func(i int) bool { return bytes.Compare(w.at(i), word) >= 0 })
}

// prefixed returns the range of words that begin with prefix.
func (w *wordList) prefixed(prefix []byte) (from, to int) {
	from = w.notBefore(prefix)
	if few := min(from+stride, w.len()); few == w.len() || !bytes.HasPrefix(w.at(few), prefix) {
		return from, from + sort.Search(few-from, func(i int) bool { return !bytes.HasPrefix(w.at(from+i), prefix) })
	}
	to = sampledSearch(w.every, w.len(), lastKey(prefix), func(i int) bool {
		return bytes.Compare(w.at(i), prefix) > 0 && !bytes.HasPrefix(w.at(i), prefix)
	})
	return from, to
}

// after returns the position from which on words no longer begin with prefix.
func (w *wordList) after(from int, prefix []byte) int {
	return from + soonest(w.len()-from, func(i int) bool { return !bytes.HasPrefix(w.at(from+i), prefix) })
}

// soonest is [sort.Search] for answers that are mostly small: its steps double.
func soonest(n int, is func(i int) bool) int {
	step := 1
	for step <= n && !is(step-1) {
		step *= 2
	}
	low := step / 2
	return low + sort.Search(min(step, n)-low, func(i int) bool { return is(low + i) })
}

// keyLength is how many bytes of a word its key holds.
const keyLength = 8

// prefixKey returns the first bytes of a word as a number that orders as they do.
func prefixKey(word []byte) uint64 {
	var b [keyLength]byte
	copy(b[:], word)
	return binary.BigEndian.Uint64(b[:])
}

// lastKey returns the last key of words that begin so, or with as much of it as a key holds.
func lastKey(prefix []byte) uint64 {
	return prefixKey(prefix) | math.MaxUint64>>(8*min(len(prefix), keyLength))
}

// sampledSearch is [sort.Search] in a list of n sorted by keys, of which every holds each strideth. It must be that is
// holds for all items with a higher key than key, and for none with a lower one.
func sampledSearch(every []uint64, n int, key uint64, is func(i int) bool) int {
	block := sort.Search(len(every), func(i int) bool { return every[i] > key || every[i] == key && is(i*stride) })
	low, high := max(0, (block-1)*stride+1), min(block*stride, n)
	return low + sort.Search(high-low, func(i int) bool { return is(low + i) })
}

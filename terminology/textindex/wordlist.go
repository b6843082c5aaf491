package textindex

import (
	"bytes"
	"sort"
)

// wordList is a sorted list of words: word i is text[from[i]:from[i+1]].
type wordList struct {
	text  []byte
	from  []uint32
	every []uint64 // the key of every word that is a multiple of stride, as in textOrder
}

func (w *wordList) sample() {
	for i := 0; i < w.len(); i += stride {
		w.every = append(w.every, prefixKey(w.at(i)))
	}
}

func (w *wordList) len() int { return len(w.from) - 1 }

func (w *wordList) at(i int) []byte { return w.text[w.from[i]:w.from[i+1]] }

// prefixed returns the range of words that begin with prefix.
func (w *wordList) prefixed(prefix []byte) (from, to int) {
	from = w.first(prefixKey(prefix), func(word []byte) bool { return bytes.Compare(word, prefix) >= 0 })
	to = w.first(lastKey(prefix), func(word []byte) bool { return bytes.Compare(word, prefix) > 0 && !bytes.HasPrefix(word, prefix) })
	return from, to
}

// first returns the first word for which is holds; it holds for all words with a higher key than key, and for none with
// a lower one.
func (w *wordList) first(key uint64, is func(word []byte) bool) int {
	block := sort.Search(len(w.every), func(i int) bool {
		return w.every[i] > key || w.every[i] == key && is(w.at(i*stride))
	})
	low, high := around(block, w.len())
	return low + sort.Search(high-low, func(i int) bool { return is(w.at(low + i)) })
}

// after returns the position from which on words no longer begin with prefix.
func (w *wordList) after(from int, prefix []byte) int {
	step := 1
	for from+step < w.len() && bytes.HasPrefix(w.at(from+step), prefix) {
		step *= 2
	}
	low := from + step/2
	return low + sort.Search(min(from+step, w.len())-low, func(i int) bool { return !bytes.HasPrefix(w.at(low+i), prefix) })
}

package textindex

import (
	"bytes"
	"sort"
)

// wordList is a sorted list of words: word i is text[from[i]:from[i+1]].
type wordList struct {
	text  []byte
	from  []uint32
	every []uint64 // the key of every strideth word, as in textOrder
}

func (w *wordList) len() int { return len(w.from) - 1 }

func (w *wordList) at(i int) []byte { return w.text[w.from[i]:w.from[i+1]] }

// prefixed returns the range of words that begin with prefix.
func (w *wordList) prefixed(prefix []byte) (from, to int) {
	from = sampledSearch(w.every, w.len(), prefixKey(prefix), func(i int) bool { return bytes.Compare(w.at(i), prefix) >= 0 })
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

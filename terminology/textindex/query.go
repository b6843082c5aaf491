package textindex

import (
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

// query is the search for one filter in an index. Queries are pooled, for the memory of their sets.
type query struct {
	index  *Index
	within bitset.Set // the ranks to search; nil for all
	how    leniency
	judge  judge

	sets  rankSets
	words wordFinder
	page  page
}

var queries = sync.Pool{New: func() any { return new(query) }}

// withRune returns the documents that have a letter or sign.
func (q *query) withRune(kind byte, r rune) rankSet {
	word, ok := q.index.words.find(appendRuneWord(nil, kind, r))
	if !ok {
		return q.sets.set()
	}
	if kept, ok := q.index.common.set(word, word+1, len(q.index.order)); ok {
		return kept
	}
	found := q.sets.set()
	q.index.addWords(&found, word, word+1)
	return found
}

package textindex

import "github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"

// searchIndex returns the hits from position from up to to, and how many there are in all.
func searchIndex(x *Index, within bitset.Set, f *Filter, how leniency, from, to int) ([]Hit, int) {
	q := queries.Get().(*query)
	q.index, q.within, q.how = x, within, how
	q.judge.filter, q.judge.asked, q.judge.divided = f, f.in(x.language), x.divided
	q.judge.reader.corpus, q.judge.reader.spotter.language = x.corpus, x.language
	q.sets.n = len(x.order)
	q.words.begin(x, q.judge.asked, how, &q.sets)
	q.page.begin(x.order, from, to)
	total := q.search()
	hits := q.page.end() // not the index's memory, which may be unmapped from here on
	q.words.end()
	q.index, q.within = nil, nil
	q.judge.filter, q.judge.asked, q.judge.divided = nil, nil, nil
	q.judge.reader.forget()
	queries.Put(q)
	return hits, total
}

// search finds and ranks hits, and returns how many there are.
func (q *query) search() (total int) {
	if w := q.judge.asked.only(); w != nil && q.how == strictly && q.within == nil {
		return q.rankWord(w)
	}
	match, all := q.find()
	if q.within != nil {
		match = q.sets.both(match, rankSet{bits: q.within})
	}
	switch {
	case !all:
		total = q.rankEach(&match)
	case q.how != strictly:
		total = match.count()
		q.page.last(&match, tierLenient)
	default:
		total = match.count()
		q.page.total = total
		q.rank(&match)
	}
	q.sets.release(match)
	return total
}

// find returns what matches, or, unless all does, what may match and must be looked at.
func (q *query) find() (match rankSet, all bool) {
	f := q.judge.filter
	switch {
	case f.symbols != nil:
		return q.findSymbols(string(f.symbols)), false
	case f.letter != nil:
		return q.withRune(letterAnywhere, f.theLetter()), true
	case q.how != strictly:
		return q.words.upTo(tierBegun), true
	}
	return q.words.find(fewMatches)
}

// findSymbols returns the documents that have each of the symbols.
func (q *query) findSymbols(symbols string) (found rankSet) {
	for _, r := range symbols {
		if r != ' ' {
			found = q.sets.both(found, q.withRune(signAnywhere, r))
		}
	}
	return found
}

package terminology

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/caddy-fhir/caddy-fhir/terminology/bitset"
)

// scanned is how many entries of an expansion are rather looked at one by one than found by an index.
const scanned = 256

// maxRuns is how many runs of an expansion are looked for with the index of their code system.
const maxRuns = 8

// maxLanguages is for how many languages an expansion keeps what it needs. Beyond that it is forgotten, as
// anyone may ask in any language.
const maxLanguages = 16

// searcher finds the entries of one expansion that match a filter. What it needs for that is made when it
// is first asked in a language.
type searcher struct {
	mu    sync.Mutex
	parts map[string]*madeParts // by list of languages
}

// part is some of the entries of an expansion, in a corpus: a run of concepts in the order of their code
// system, in all of its concepts; or whatever else there is, as entries.
type part struct {
	corpus corpus
	index  *index     // nil where the corpus is scanned
	within bitset.Set // the ranks of the index that are meant; nil for all
	rows   []uint32   // the place in the expansion of each document; nil for a run
	first  uint32     // for a run: the place in the expansion of its first entry
	system uint32     // for a run: the index in Library.codeSystems
}

// search returns the entries that match a filter, as [TextFilterRule] has it, from the position from up
// to to, and how many there are in all. Displays are those of the given list of languages, or the code systems'
// own where it is empty.
func (l *Library) search(x *expansion, f *textFilter, list string, from, to int, b *budget) ([]entry, int, error) {
	parts, err := l.parts(x, list, b)
	if err != nil {
		return nil, 0, err
	}
	for _, how := range []leniency{strictly, withinWords, withTypos} {
		if !f.allows(how) {
			continue
		}
		if page, total, err := searchParts(x, parts, f, how, from, to, b); total > 0 || err != nil {
			return page, total, err
		}
	}
	return nil, 0, nil
}

// searchParts is search, in one way.
func searchParts(x *expansion, parts []part, f *textFilter, how leniency, from, to int, b *budget) ([]entry, int, error) {
	if len(parts) == 1 {
		hits, total, err := parts[0].search(f, how, from, to, b)
		entries := make([]entry, len(hits))
		for i, h := range hits {
			entries[i] = parts[0].entry(x, h.doc)
		}
		return entries, total, err
	}
	type placed struct {
		hit
		part *part
	}
	var all []placed
	total := 0
	for i := range parts {
		hits, n, err := parts[i].search(f, how, 0, to, b)
		if err != nil {
			return nil, 0, err
		}
		total += n
		for _, h := range hits {
			all = append(all, placed{hit: h, part: &parts[i]})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		if c := compareHits(a.part.corpus, a.hit, b.part.corpus, b.hit); c != 0 {
			return c
		}
		return int(a.part.place(a.doc)) - int(b.part.place(b.doc))
	})
	all = all[min(from, len(all)):min(to, len(all))]
	entries := make([]entry, len(all))
	for i, h := range all {
		entries[i] = h.part.entry(x, h.doc)
	}
	return entries, total, nil
}

// search returns the hits of one part.
func (p *part) search(f *textFilter, how leniency, from, to int, b *budget) ([]hit, int, error) {
	if p.index == nil {
		return searchScan(p.corpus, f, how, from, to, b)
	}
	if how != strictly { // goes through all words
		if err := b.spend(p.index.words.len() / plainBytes); err != nil {
			return nil, 0, err
		}
	}
	hits, total := searchIndex(p.index, p.within, f, how, from, to)
	return hits, total, nil
}

// entry returns the entry that a document stands for.
func (p *part) entry(x *expansion, doc uint32) entry {
	if p.rows == nil {
		return entry{codeSystem: p.system, concept: doc}
	}
	return x.entries[p.rows[doc]]
}

// place tells where a document stands in the expansion, among those of other parts. Those of one run have
// the same place, and are in order already.
func (p *part) place(doc uint32) uint32 {
	if p.rows == nil {
		return p.first
	}
	return p.rows[doc]
}

// parts returns the parts of an expansion in a list of languages. Making them may take an index, which is costly
// but for a small expansion.
func (l *Library) parts(x *expansion, list string, b *budget) ([]part, error) {
	if parts, ok := x.searcher.look(list); ok {
		return parts, nil
	}
	if len(x.entries) > scanned {
		if err := b.enter(); err != nil {
			return nil, err
		}
	}
	if err := b.spend(len(x.entries)); err != nil {
		return nil, err
	}
	return x.searcher.get(list, func() []part { return l.divide(x, list) }), nil
}

// look returns the parts for a list of languages, if they have been made.
func (s *searcher) look(list string) ([]part, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	made, ok := s.parts[list]
	if !ok || !made.ready.Load() {
		return nil, false
	}
	return made.parts(), true
}

// get returns the parts for a list of languages, which are made once. Nobody waits for those that somebody else
// needs.
func (s *searcher) get(list string, divide func() []part) []part {
	s.mu.Lock()
	made, ok := s.parts[list]
	if !ok {
		if s.parts == nil || len(s.parts) >= maxLanguages {
			s.parts = make(map[string]*madeParts)
		}
		made = &madeParts{parts: sync.OnceValue(divide)}
		s.parts[list] = made
	}
	s.mu.Unlock()
	defer made.ready.Store(true)
	return made.parts()
}

// madeParts are parts that are made when they are first needed.
type madeParts struct {
	parts func() []part
	ready atomic.Bool
}

// divide divides an expansion into parts.
func (l *Library) divide(x *expansion, list string) (parts []part) {
	shortest := max(scanned+1, len(x.entries)/maxRuns)
	var rest []uint32
	for at := 0; at < len(x.entries); {
		end := runFrom(x.entries, at)
		if end-at >= shortest && len(x.supplements) == 0 && !l.isOwn(x.entries[at].codeSystem) {
			parts = append(parts, l.run(x, list, at, end))
		} else {
			for i := at; i < end; i++ {
				rest = append(rest, uint32(i))
			}
		}
		at = end
	}
	if len(rest) > 0 {
		parts = append(parts, l.rest(x, list, rest))
	}
	return parts
}

// runFrom returns where the run ends that begins at a place: entries of one code system in its order, and
// without a display of their own.
func runFrom(entries []entry, at int) int {
	end := at + 1
	if entries[at].concept == none || entries[at].listed != 0 {
		return end
	}
	for end < len(entries) {
		e, last := entries[end], entries[end-1]
		if e.codeSystem != last.codeSystem || e.listed != 0 || e.concept == none || e.concept <= last.concept {
			break
		}
		end++
	}
	return end
}

// run returns the part for a run.
func (l *Library) run(x *expansion, list string, from, to int) part {
	system := x.entries[from].codeSystem
	index := l.codeSystems[system].searchIndex(list)
	p := part{corpus: index.corpus, index: index, first: uint32(from), system: system}
	if n := len(index.order); to-from < n {
		members := bitset.New(n)
		for _, e := range x.entries[from:to] {
			members.Add(e.concept)
		}
		p.within = index.members(members)
	}
	return p
}

// rest returns the part for entries that stand in no run.
func (l *Library) rest(x *expansion, list string, rows []uint32) part {
	p := part{corpus: &entryCorpus{library: l, entries: x.entries, rows: rows, languages: parseLanguages(list), supplements: x.supplements}, rows: rows}
	if len(rows) > scanned && (l.base == nil || l.beside) { // what a request brings along is asked for once
		p.index = newIndex(p.corpus)
	}
	return p
}

package compose

import (
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Scanned is up to how many entries of an expansion are scanned rather than indexed.
const Scanned = 256

// maxRuns bounds how many runs of an expansion are searched with their code system's index.
const maxRuns = 8

// Search returns the entries from position from up to to that match a filter by [textindex.Rule], and how many match in
// all. Displays are in the given languages, or the code systems' own if list is empty.
func Search(l *definitions.Set, x *CodeList, f *textindex.Filter, list string, from, to int, b *budget.Budget) ([]definitions.Entry, int, error) {
	d, err := DivisionOf(l, x, list, b)
	if err != nil {
		return nil, 0, err
	}
	hits, total, err := textindex.Search(d.Searched, f, from, to, b.Spend)
	entries := make([]definitions.Entry, len(hits))
	for i, h := range hits {
		entries[i] = d.Entries[h.Part](h.Doc)
	}
	return entries, total, err
}

// DivisionOf returns the division of an expansion for a list of languages. It may have to build an index, which is costly
// for a large expansion.
func DivisionOf(l *definitions.Set, x *CodeList, list string, b *budget.Budget) (*division, error) {
	if d, ok := x.searcher.look(list); ok {
		return d, nil
	}
	if len(x.Entries) > Scanned {
		if err := b.Enter(); err != nil {
			return nil, err
		}
	}
	if err := b.Spend(len(x.Entries)); err != nil {
		return nil, err
	}
	d := &divider{division: new(division), library: l, codes: x, languages: list}
	if l.OfRequest() && !x.searcher.searched.Swap(true) { // most definitions of requests are searched once: an index would not pay
		return d.divide(), nil
	}
	d.indexed = true
	return x.searcher.get(list, d.divide), nil
}

type divider struct {
	*division
	library   *definitions.Set
	codes     *CodeList
	languages string
	indexed   bool // entries in no run are indexed rather than scanned
}

// divide makes one part of each long run, and one of all other entries. A value set with weights of its own has another
// order than the index of the code system, and so no runs.
func (d *divider) divide() *division {
	entries := d.codes.Entries
	shortest := max(Scanned+1, len(entries)/maxRuns)
	var rest []uint32
	for at := 0; at < len(entries); {
		end := runFrom(entries, at)
		if end-at >= shortest && len(d.codes.Supplements) == 0 && d.codes.weights == nil && !d.library.Systems.IsOwn(entries[at].CodeSystem) {
			d.addRun(at, end)
		} else {
			for i := at; i < end; i++ {
				rest = append(rest, uint32(i))
			}
		}
		at = end
	}
	if len(rest) > 0 {
		d.addRest(rest)
	}
	return d.division
}

// runFrom returns the end of the run at a position: entries of one code system, in its order and without displays of
// their own.
func runFrom(entries []definitions.Entry, at int) int {
	end := at + 1
	if !entries[at].IsNumbered() || entries[at].Listed != 0 {
		return end
	}
	for end < len(entries) {
		e, last := entries[end], entries[end-1]
		if e.CodeSystem != last.CodeSystem || e.Listed != 0 || !e.IsNumbered() || e.Concept <= last.Concept {
			break
		}
		end++
	}
	return end
}

// addRun adds a run as a part, whose documents are the concepts of its code system.
func (d *divider) addRun(from, to int) {
	run := d.codes.Entries[from:to]
	system := run[0].CodeSystem
	cs := d.library.Systems.CodeSystems[system]
	p := textindex.Part{Index: cs.Concepts.Search.SearchIndex(d.languages), Place: func(uint32) uint32 { return uint32(from) }}
	if len(run) < cs.Concepts.Len() {
		members := bitset.New(cs.Concepts.Len())
		for _, e := range run {
			members.Add(e.Concept)
		}
		p.Within = p.Index.RanksOf(members)
	}
	d.Searched = append(d.Searched, p)
	d.Entries = append(d.Entries, func(doc uint32) definitions.Entry { return definitions.Entry{CodeSystem: system, Concept: doc} })
}

// addRest adds a part for entries in no run, whose documents are positions in rows.
func (d *divider) addRest(rows []uint32) {
	c := newEntryCorpus(d.library, d.codes, rows, codesystem.ParseLanguages(d.languages))
	p := textindex.Part{Corpus: c, Place: func(doc uint32) uint32 { return rows[doc] }}
	if len(rows) > Scanned && d.indexed {
		p.Index = textindex.New(c)
	}
	if p.Index == nil {
		p.Compounds = textindex.NewCompounds(c)
	}
	d.Searched, d.Entries = append(d.Searched, p), append(d.Entries, c.entry)
}

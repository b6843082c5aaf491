package compose

import (
	"cmp"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/table"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Scanned is the maximum number of entries of an expansion that are scanned instead of indexed.
const Scanned = 256

// maxRuns is the maximum number of runs of an expansion that use their code system's index.
const maxRuns = 8

// Search returns the entries in positions from up to to that match a filter, ordered by [textindex.Rule], and the total
// number of matches. list selects the languages of displays; default: the languages of the code systems.
func Search(l *definitions.Set, x *CodeList, f *textindex.Filter, list string, from, to int, b *budget.Budget) ([]definitions.Entry, int, error) {
	d, err := DivisionOf(l, x, list, b)
	if err != nil {
		return nil, 0, err
	}
	hits, total, err := textindex.Search(d.Searched, f, from, to, b.Charge)
	entries := make([]definitions.Entry, len(hits))
	for i, h := range hits {
		entries[i] = d.Entries[h.Part](h.Doc)
	}
	return entries, total, err
}

// DivisionOf returns the division of an expansion for a list of languages. It may build an index, which is costly for a
// large expansion.
func DivisionOf(l *definitions.Set, x *CodeList, list string, b *budget.Budget) (*division, error) {
	if d, ok := x.searcher.look(list); ok {
		return d, nil
	}
	if len(x.Entries) > Scanned {
		if err := b.AcquireSlot(); err != nil {
			return nil, err
		}
	}
	if err := b.Charge(len(x.Entries)); err != nil {
		return nil, err
	}
	d := &divider{division: new(division), library: l, codes: x, languages: list}
	if l.OfRequest() && !x.searcher.searched.Swap(true) { // most definitions of requests are searched only once, so an index would not pay off
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
	indexed   bool // whether entries outside runs are indexed instead of scanned
}

// divide creates a part for each long run, and one for all other entries. A value set with its own weights has no runs,
// because its order differs from the code system's index.
func (d *divider) divide() *division {
	entries := d.codes.Entries
	shortest := max(Scanned+1, len(entries)/maxRuns)
	var rest []uint32
	for at := 0; at < len(entries); {
		end := runFrom(entries, at)
		if end-at >= shortest && len(d.codes.Supplements) == 0 && d.codes.weights == nil && !d.library.Systems.IsFromRequest(entries[at].CodeSystem) {
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

// runFrom returns the end of the run that starts at a position: entries of one code system in its order, without
// displays of the value set.
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

// addRun adds a part for a run. The documents are the concepts of the run's code system.
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

// addRest adds a part for entries outside runs. The documents are positions in rows.
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

// entryCorpus is a [textindex.Corpus] of entries of an expansion.
type entryCorpus struct {
	library   *definitions.Set
	codes     *CodeList
	rows      []uint32 // by document: index in codes.Entries
	languages codesystem.Languages

	best map[uint32]string // by code system: most preferred language that it or a supplement has; "" if none

	once  sync.Once
	ranks []uint32 // ranks of entries of code systems that provide no ranks

	onceShown sync.Once
	mixed     bool       // whether documents may be displayed in another language than requested
	foreign   bitset.Set // documents displayed in another language
}

func newEntryCorpus(l *definitions.Set, x *CodeList, rows []uint32, languages codesystem.Languages) *entryCorpus {
	c := &entryCorpus{library: l, codes: x, rows: rows, languages: languages}
	if languages.None() {
		return c
	}
	c.best = make(map[uint32]string)
	for _, index := range x.CodeSystems {
		cs := l.Systems.CodeSystems[index]
		systems := []codesystem.Dialects{cs.Concepts.Dialects}
		for _, s := range x.Supplements {
			if s.Of == index {
				systems = append(systems, l.Systems.CodeSystems[s.By].Concepts.Dialects)
			}
		}
		c.best[index] = languages.Best(systems...)
		c.mixed = c.mixed || codesystem.MayBeForeign(cs.Concepts, c.best[index])
	}
	return c
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

func (c *entryCorpus) entry(doc uint32) definitions.Entry { return c.codes.Entries[c.rows[doc]] }

// Code returns the code of an entry.
func (c *entryCorpus) Code(doc uint32) []byte { return c.library.Code(c.entry(doc)) }

// Display returns the display of an entry in the requested languages, otherwise its code.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.library.Display(c.entry(doc))
	if !c.languages.None() {
		display = c.languages.DisplayOf(c.library.ShownTexts(nil, c.library.Locate(c.entry(doc)), "", c.codes.Supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOthers appends the other searchable texts of an entry.
func (c *entryCorpus) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	e := c.entry(doc)
	return c.languages.AppendSearched(dst, c.library.ShownTexts(nil, c.library.Locate(e), "", c.codes.Supplements), c.language(e))
}

// language returns the preferred language for the display of an entry; "" means any.
func (c *entryCorpus) language(e definitions.Entry) string {
	if !e.IsKnown() {
		return ""
	}
	return c.best[e.CodeSystem]
}

// isForeign reports whether an entry is displayed in another language than requested.
func (c *entryCorpus) isForeign(doc uint32) bool {
	if !c.mixed {
		return false
	}
	c.onceShown.Do(c.findForeign)
	return c.foreign.Has(doc)
}

func (c *entryCorpus) findForeign() {
	c.foreign = bitset.New(c.Len())
	var texts []codesystem.Text
	for doc := range uint32(c.Len()) {
		e := c.entry(doc)
		language := c.language(e)
		if !e.IsKnown() || !codesystem.MayBeForeign(c.library.Systems.CodeSystems[e.CodeSystem].Concepts, language) {
			continue
		}
		texts = c.library.ShownTexts(texts[:0], c.library.Locate(e), "", c.codes.Supplements)
		if shown := c.languages.Preferred(texts); shown >= 0 && c.languages.Foreign(&texts[shown], language) {
			c.foreign.Add(doc)
		}
	}
}

// Rank returns the rank of an entry's concept in its code system or, if that is unknown, in the expansion. The value
// set's own weight, if any, replaces the code system's.
func (c *entryCorpus) Rank(doc uint32) uint32 {
	e := c.entry(doc)
	if !e.IsKnown() || c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Search == nil {
		c.once.Do(func() { c.ranks = textindex.Ranks(c) })
		return c.ranks[doc]
	}
	rank := c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Search.SearchRank(e.Concept)
	if weight, ok := c.weight(e); ok {
		rank = textindex.Weighed(rank, weight)
	}
	if c.isForeign(doc) {
		rank = textindex.Foreign(rank)
	}
	return rank
}

// Language returns the language of the first entry with a known code system.
func (c *entryCorpus) Language() string {
	for doc := range uint32(c.Len()) {
		if e := c.entry(doc); e.IsKnown() {
			return cmp.Or(c.language(e), c.library.Systems.CodeSystems[e.CodeSystem].Concepts.Language())
		}
	}
	return c.languages.First()
}

// Parent and the following methods implement [textindex.Terms] for ranks that do not depend on code systems.
func (*entryCorpus) Parent(uint32) (uint32, bool) { return 0, false }
func (*entryCorpus) Abstract(uint32) bool         { return false }
func (*entryCorpus) Inactive(uint32) bool         { return false }

func (c *entryCorpus) Weight(doc uint32) float64 {
	weight, _ := c.weight(c.entry(doc))
	return weight
}

// weight returns the usage weight of an entry from another source than its code system. The order of precedence is: a
// file for the value set, the value set's own extension, a supplement.
func (c *entryCorpus) weight(e definitions.Entry) (weight float64, ok bool) {
	l, x := c.library, c.codes
	if x.weights != nil {
		return x.weights.Weight(l.Code(e)), true
	}
	if l.Usage == (definitions.Usage{}) {
		return 0, false
	}
	if weight = c.ownWeight(e); weight > 0 {
		return weight, true
	}
	for cs, concept := range l.Described(l.Locate(e), x.Supplements) {
		if cs == l.Systems.CodeSystems[e.CodeSystem] || cs.Concepts.Search == nil {
			continue
		}
		if weight = cs.Concepts.Search.SearchWeight(concept.Number); weight > 0 {
			return weight, true
		}
	}
	if !e.IsKnown() || l.Systems.CodeSystems[e.CodeSystem].Concepts.Search == nil {
		return l.Usage.Files.Of(l.Systems.List[l.SystemOf(e)].URL).Weight(l.Code(e)), true
	}
	return 0, false
}

// ownWeight returns the weight of an entry in the value set.
func (c *entryCorpus) ownWeight(e definitions.Entry) float64 {
	l := c.library
	if !l.Usage.Items || e.ListedRow() == 0 {
		return 0
	}
	rows, _ := l.Row(e.Listed)
	for _, x := range rows.ExtensionsOf(e.Listed) {
		if x.Kind == codesystem.ExtensionWeight {
			return table.ItemWeight(rows.Texts.At(x.Value))
		}
	}
	return 0
}

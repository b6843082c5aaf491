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

// MaxScanned is the maximum number of entries of an expansion that are scanned without an index.
const MaxScanned = 256

// maxRuns is the maximum number of runs in an expansion that use the index of their code system.
const maxRuns = 8

// Search returns the matches of a filter in positions [from, to), in the order defined by [textindex.Rule], and the total
// number of matches. list selects the languages of displays. If it is empty, displays have the languages of the code systems.
func Search(l *definitions.Set, x *CodeList, f *textindex.Filter, list string, from, to int, b *budget.Budget) ([]definitions.Entry, int, error) {
	d, err := DivisionOf(l, x, list, b)
	if err != nil {
		return nil, 0, err
	}
	hits, total, err := textindex.Search(d.Parts, f, from, to, b.Charge)
	entries := make([]definitions.Entry, len(hits))
	for i, h := range hits {
		entries[i] = d.EntryAt[h.Part](h.Doc)
	}
	return entries, total, err
}

// DivisionOf returns the division for a language list. Building an index for a large expansion is costly.
func DivisionOf(l *definitions.Set, x *CodeList, list string, b *budget.Budget) (*division, error) {
	if d, ok := x.searcher.getIfBuilt(list); ok {
		return d, nil
	}
	if len(x.Entries) > MaxScanned {
		if err := b.AcquireSlot(); err != nil {
			return nil, err
		}
	}
	if err := b.Charge(len(x.Entries)); err != nil {
		return nil, err
	}
	d := &divider{division: new(division), definitions: l, codes: x, languages: list}
	if l.IsRequestOverlay() && !x.searcher.wasSearched.Swap(true) { // most value sets sent with requests are searched only once, so an index would not pay off
		return d.divide(), nil
	}
	d.indexOthers = true
	return x.searcher.get(list, d.divide), nil
}

type divider struct {
	*division
	definitions *definitions.Set
	codes       *CodeList
	languages   string
	indexOthers bool // whether entries outside runs are indexed instead of scanned
}

// divide creates a part for each long run and one for all other entries. A value set with its own weights has no runs, because
// it is ordered differently from the code system's index.
func (d *divider) divide() *division {
	entries := d.codes.Entries
	shortest := max(MaxScanned+1, len(entries)/maxRuns)
	var rest []uint32
	for at := 0; at < len(entries); {
		end := endOfRun(entries, at)
		if end-at >= shortest && len(d.codes.Supplements) == 0 && d.codes.weights == nil && !d.definitions.Systems.IsFromRequest(entries[at].CodeSystem) {
			d.addRun(at, end)
		} else {
			for i := at; i < end; i++ {
				rest = append(rest, uint32(i))
			}
		}
		at = end
	}
	if len(rest) > 0 {
		d.addOtherEntries(rest)
	}
	return d.division
}

// endOfRun returns the end of the run that starts at position at. A run consists of entries of one code system in the code
// system's order, without displays from the value set.
func endOfRun(entries []definitions.Entry, at int) int {
	end := at + 1
	if !entries[at].HasConceptNumber() || entries[at].Row != 0 {
		return end
	}
	for end < len(entries) {
		e, last := entries[end], entries[end-1]
		if e.CodeSystem != last.CodeSystem || e.Row != 0 || !e.HasConceptNumber() || e.Concept <= last.Concept {
			break
		}
		end++
	}
	return end
}

// addRun adds a part for the entries [from, to), which are a run. Its documents are the concepts of the code system.
func (d *divider) addRun(from, to int) {
	run := d.codes.Entries[from:to]
	system := run[0].CodeSystem
	cs := d.definitions.Systems.CodeSystems[system]
	p := textindex.Part{Index: cs.Concepts.Searchable.SearchIndex(d.languages), Position: func(uint32) uint32 { return uint32(from) }}
	if len(run) < cs.Concepts.Len() {
		members := bitset.New(cs.Concepts.Len())
		for _, e := range run {
			members.Add(e.Concept)
		}
		p.Ranks = p.Index.RanksOf(members)
	}
	d.Parts = append(d.Parts, p)
	d.EntryAt = append(d.EntryAt, func(doc uint32) definitions.Entry { return definitions.Entry{CodeSystem: system, Concept: doc} })
}

// addOtherEntries adds a part for entries outside runs. Its documents are the positions in rows.
func (d *divider) addOtherEntries(rows []uint32) {
	c := newEntryCorpus(d.definitions, d.codes, rows, codesystem.ParseLanguages(d.languages))
	p := textindex.Part{Corpus: c, Position: func(doc uint32) uint32 { return rows[doc] }}
	if len(rows) > MaxScanned && d.indexOthers {
		p.Index = textindex.New(c)
	}
	if p.Index == nil {
		p.Compounds = textindex.NewCompounds(c)
	}
	d.Parts, d.EntryAt = append(d.Parts, p), append(d.EntryAt, c.entry)
}

// entryCorpus is a [textindex.Corpus] of entries of an expansion.
type entryCorpus struct {
	definitions *definitions.Set
	codes       *CodeList
	rows        []uint32 // for each document: index in codes.Entries
	languages   codesystem.Languages

	bestLanguages map[uint32]string // for each code system: the most preferred language that it or a supplement has; "" if none

	once  sync.Once
	ranks []uint32 // ranks of entries from code systems that provide no ranks

	onceForeign sync.Once
	hasForeign  bool       // whether documents may be displayed in a language that was not requested
	foreign     bitset.Set // documents displayed in a language that was not requested
}

func newEntryCorpus(l *definitions.Set, x *CodeList, rows []uint32, languages codesystem.Languages) *entryCorpus {
	c := &entryCorpus{definitions: l, codes: x, rows: rows, languages: languages}
	if languages.IsEmpty() {
		return c
	}
	c.bestLanguages = make(map[uint32]string)
	for _, index := range x.CodeSystems {
		cs := l.Systems.CodeSystems[index]
		systems := []codesystem.Multilingual{cs.Concepts.Multilingual}
		for _, s := range x.Supplements {
			if s.CodeSystem == index {
				systems = append(systems, l.Systems.CodeSystems[s.Supplement].Concepts.Multilingual)
			}
		}
		c.bestLanguages[index] = languages.BestAvailable(systems...)
		c.hasForeign = c.hasForeign || codesystem.MayBeForeign(cs.Concepts, c.bestLanguages[index])
	}
	return c
}

// Len returns the number of entries.
func (c *entryCorpus) Len() int { return len(c.rows) }

func (c *entryCorpus) entry(doc uint32) definitions.Entry { return c.codes.Entries[c.rows[doc]] }

// Code returns the code of an entry.
func (c *entryCorpus) Code(doc uint32) []byte { return c.definitions.Code(c.entry(doc)) }

// Display returns the display of an entry in the requested languages, or its code if it has no display.
func (c *entryCorpus) Display(doc uint32) []byte {
	display := c.definitions.Display(c.entry(doc))
	if !c.languages.IsEmpty() {
		display = c.languages.DisplayOf(c.definitions.AppendTexts(nil, c.definitions.Locate(c.entry(doc)), "", c.codes.Supplements))
	}
	if len(display) == 0 {
		return c.Code(doc)
	}
	return display
}

// AppendOtherTexts appends the other searchable texts of an entry.
func (c *entryCorpus) AppendOtherTexts(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	e := c.entry(doc)
	return c.languages.AppendSearchable(dst, c.definitions.AppendTexts(nil, c.definitions.Locate(e), "", c.codes.Supplements), c.preferredLanguage(e))
}

// preferredLanguage returns the language to prefer for the display of an entry; "" means any.
func (c *entryCorpus) preferredLanguage(e definitions.Entry) string {
	if !e.HasConcept() {
		return ""
	}
	return c.bestLanguages[e.CodeSystem]
}

// isForeign reports whether an entry is displayed in a language that was not requested.
func (c *entryCorpus) isForeign(doc uint32) bool {
	if !c.hasForeign {
		return false
	}
	c.onceForeign.Do(c.findForeign)
	return c.foreign.Has(doc)
}

func (c *entryCorpus) findForeign() {
	c.foreign = bitset.New(c.Len())
	var texts []codesystem.Text
	for doc := range uint32(c.Len()) {
		e := c.entry(doc)
		language := c.preferredLanguage(e)
		if !e.HasConcept() || !codesystem.MayBeForeign(c.definitions.Systems.CodeSystems[e.CodeSystem].Concepts, language) {
			continue
		}
		texts = c.definitions.AppendTexts(texts[:0], c.definitions.Locate(e), "", c.codes.Supplements)
		if shown := c.languages.PreferredDisplay(texts); shown >= 0 && c.languages.IsForeign(&texts[shown], language) {
			c.foreign.Add(doc)
		}
	}
}

// Rank returns the rank of an entry's concept in its code system or, if that is unknown, in the expansion. A weight specified
// by the value set replaces the code system's weight.
func (c *entryCorpus) Rank(doc uint32) uint32 {
	e := c.entry(doc)
	if !e.HasConcept() || c.definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Searchable == nil {
		c.once.Do(func() { c.ranks = textindex.Ranks(c) })
		return c.ranks[doc]
	}
	rank := c.definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Searchable.SearchRank(e.Concept)
	if weight, ok := c.weight(e); ok {
		rank = textindex.WithWeight(rank, weight)
	}
	if c.isForeign(doc) {
		rank = textindex.ForeignRank(rank)
	}
	return rank
}

// Language returns the language of the first entry with a known code system.
func (c *entryCorpus) Language() string {
	for doc := range uint32(c.Len()) {
		if e := c.entry(doc); e.HasConcept() {
			return cmp.Or(c.preferredLanguage(e), c.definitions.Systems.CodeSystems[e.CodeSystem].Concepts.Language())
		}
	}
	return c.languages.First()
}

// Parent and the following methods implement [textindex.Terms] for ranks within the expansion.
func (*entryCorpus) Parent(uint32) (uint32, bool) { return 0, false }
func (*entryCorpus) Abstract(uint32) bool         { return false }
func (*entryCorpus) Inactive(uint32) bool         { return false }

func (c *entryCorpus) Weight(doc uint32) float64 {
	weight, _ := c.weight(c.entry(doc))
	return weight
}

// weight returns the usage weight of an entry that does not come from its code system. In order of precedence, the source is a
// file for the value set, the value set's extension, or a supplement.
func (c *entryCorpus) weight(e definitions.Entry) (weight float64, ok bool) {
	l, x := c.definitions, c.codes
	if x.weights != nil {
		return x.weights.Weight(l.Code(e)), true
	}
	if l.Usage == (definitions.Usage{}) {
		return 0, false
	}
	if weight = c.valueSetWeight(e); weight > 0 {
		return weight, true
	}
	for cs, concept := range l.DescribingSystems(l.Locate(e), x.Supplements) {
		if cs == l.Systems.CodeSystems[e.CodeSystem] || cs.Concepts.Searchable == nil {
			continue
		}
		if weight = cs.Concepts.Searchable.SearchWeight(concept.Number); weight > 0 {
			return weight, true
		}
	}
	if !e.HasConcept() || l.Systems.CodeSystems[e.CodeSystem].Concepts.Searchable == nil {
		return l.Usage.Files.TableFor(l.Systems.List[l.SystemOf(e)].URL).Weight(l.Code(e)), true
	}
	return 0, false
}

// valueSetWeight returns the weight that the value set specifies for an entry; 0 if none.
func (c *entryCorpus) valueSetWeight(e definitions.Entry) float64 {
	l := c.definitions
	if !l.Usage.UsesItemWeight || e.ListedRow() == 0 {
		return 0
	}
	rows, _ := l.TableOfRow(e.Row)
	for _, x := range rows.ExtensionsOf(e.Row) {
		if x.Kind == codesystem.ExtensionWeight {
			return table.ItemWeight(rows.Texts.At(x.Value))
		}
	}
	return 0
}

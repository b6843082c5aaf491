package table

import (
	"cmp"
	"iter"
	"maps"
	"strconv"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// conceptCorpus is the search corpus of a code system for a language list.
type conceptCorpus struct {
	table     *Table
	languages codesystem.Languages
	language  string     // most preferred language that is available; "" if none
	foreign   bitset.Set // concepts displayed in a language that was not requested; nil if none
	searched  []bool     // by language of designations: whether they are searched
}

func newConceptCorpus(t *Table, l codesystem.Languages) *conceptCorpus {
	c := &conceptCorpus{table: t, languages: l, language: l.BestAvailable(t)}
	for _, tag := range t.designations.languages {
		isOwn := !t.searchesOwnLanguage || codesystem.HasLanguage([]string{tag}, t.language)
		c.searched = append(c.searched, tag == "" || l.Accepts(tag) && (isOwn || !l.IsEmpty()))
	}
	if !codesystem.MayBeForeign(t, c.language) {
		return c
	}
	var texts []codesystem.Text
	for concept := range uint32(t.Len()) {
		texts = t.appendTexts(texts[:0], concept, c.searched)
		if shown := l.PreferredDisplay(texts); shown >= 0 && l.IsForeign(&texts[shown], c.language) {
			if c.foreign == nil {
				c.foreign = bitset.New(t.Len())
			}
			c.foreign.Add(concept)
		}
	}
	return c
}

// Len and the following methods implement [textindex.Corpus].
func (c *conceptCorpus) Len() int               { return c.table.Len() }
func (c *conceptCorpus) Code(doc uint32) []byte { return c.table.concepts.codeOf(doc) }
func (c *conceptCorpus) Language() string       { return cmp.Or(c.language, c.table.language) }

func (c *conceptCorpus) Rank(doc uint32) uint32 {
	rank := c.table.SearchRank(doc)
	if c.foreign != nil && c.foreign.Has(doc) {
		return textindex.ForeignRank(rank)
	}
	return rank
}

func (c *conceptCorpus) Display(doc uint32) []byte {
	display := c.table.concepts.displayOf(doc)
	if !c.languages.IsEmpty() {
		display = c.languages.DisplayOf(c.table.appendTexts(nil, doc, c.searched))
	}
	if len(display) == 0 {
		return c.table.concepts.codeOf(doc)
	}
	return display
}

func (c *conceptCorpus) AppendOtherTexts(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	if !c.languages.IsEmpty() {
		return c.languages.AppendSearchable(dst, c.table.appendTexts(nil, doc, c.searched), c.language)
	}
	d := &c.table.designations
	for row, end := d.from.rows(doc); row < end; row++ {
		if c.searched[d.language[row]] {
			dst = append(dst, c.table.concepts.texts.At(d.value[row]))
		}
	}
	return dst, 0
}

// conceptTerms provides the displays of a code system for ranking.
type conceptTerms struct{ table *Table }

// Len and the following methods implement [textindex.Terms].
func (t conceptTerms) Len() int                  { return t.table.Len() }
func (t conceptTerms) Display(doc uint32) []byte { return t.table.concepts.displayOf(doc) }
func (t conceptTerms) Abstract(doc uint32) bool {
	return t.table.concepts.flags[doc]&codesystem.FlagAbstract != 0
}
func (t conceptTerms) Inactive(doc uint32) bool {
	return t.table.concepts.flags[doc]&codesystem.FlagInactive != 0
}
func (t conceptTerms) Weight(doc uint32) float64 { return t.table.SearchWeight(doc) }

func (t conceptTerms) Parent(doc uint32) (parent uint32, ok bool) {
	if parents := t.table.Parents(doc); len(parents) > 0 {
		return parents[0], true
	}
	return 0, false
}

// SearchRank returns the rank of a concept among equally good matches; see [textindex.Ranks].
func (t *Table) SearchRank(concept uint32) uint32 {
	t.indexes.once.Do(func() { t.indexes.ranks = textindex.Ranks(conceptTerms{t}) })
	return t.indexes.ranks[concept]
}

// SearchIndex returns the search index for a language list. It is built on first use.
func (t *Table) SearchIndex(list string) *textindex.Index {
	requested := codesystem.ParseLanguages(list)
	return t.indexes.get(requested.Key(languages(t)), func() *textindex.Index {
		return textindex.New(newConceptCorpus(t, requested))
	})()
}

// searchIndexes contains search indexes by [codesystem.Languages.Key], and the ranks of the concepts.
type searchIndexes struct {
	once  sync.Once
	ranks []uint32

	mu         sync.Mutex
	byLanguage map[string]func() *textindex.Index
}

// maxIndexes is the maximum number of search indexes of a code system, in addition to the one for requests without a language.
const maxIndexes = 8

// get returns a function that builds the index for a key on first call, without blocking requests for other keys.
func (s *searchIndexes) get(key string, build func() *textindex.Index) func() *textindex.Index {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.byLanguage[key]
	if !ok {
		if s.byLanguage == nil {
			s.byLanguage = make(map[string]func() *textindex.Index)
		}
		if len(s.byLanguage) > maxIndexes {
			maps.DeleteFunc(s.byLanguage, func(key string, _ func() *textindex.Index) bool { return key != "" })
		}
		x = sync.OnceValue(build)
		s.byLanguage[key] = x
	}
	return x
}

// SetWeights sets the usage weights of concepts by code. It must be called before the first search.
func (t *Table) SetWeights(weights iter.Seq2[string, float64]) {
	t.weights = make([]float64, t.Len())
	for code, weight := range weights {
		if concept, ok := t.concepts.locate([]byte(code)); ok {
			t.weights[concept] += weight
		}
	}
}

// SetItemWeights sets the usage weights to the values of the extension itemWeight. It must be called before the first search.
func (t *Table) SetItemWeights() {
	for row, kind := range t.extensions.kind {
		if kind != codesystem.ExtensionWeight {
			continue
		}
		if t.weights == nil {
			t.weights = make([]float64, t.Len())
		}
		t.weights[t.extensions.owner[row]] = ItemWeight(t.concepts.texts.At(t.extensions.value[row]))
	}
}

// ItemWeight returns the value of the extension itemWeight, a JSON member, or 0 if it is not a positive number.
func ItemWeight(member []byte) float64 {
	weight, err := strconv.ParseFloat(fhirjson.ValueText(member), 64)
	if err != nil || weight < 0 {
		return 0
	}
	return weight
}

// SearchWeight returns the usage weight of a concept; 0 if it is unknown.
func (t *Table) SearchWeight(concept uint32) float64 {
	if t.weights == nil {
		return 0
	}
	return t.weights[concept]
}

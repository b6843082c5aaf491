package expansion

import (
	"bytes"
	"crypto/sha256"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Whole is a complete expansion from another server, to be searched by [textindex.Rule] and paged here. Entries are
// returned as that server wrote them. Use a [WholeBuilder] to make one. It is safe for concurrent use.
type Whole struct {
	head       []fhirjson.Member // members of the ValueSet except expansion
	expansion  []fhirjson.Member // its members except contains, total, offset and parameter
	parameters [][]byte          // expansion.parameter, except those of a page
	entries    []wholeEntry
	languages  codesystem.Languages
	index      *textindex.Index     // nil if there are few entries
	compounds  *textindex.Compounds // of these; nil if there is an index
	ranks      []uint32             // by entry
	digest     [sha256.Size]byte
	size       int
}

// wholeEntry is one of expansion.contains.
type wholeEntry struct {
	raw      []byte // JSON
	code     []byte
	display  []byte
	inactive bool
	abstract bool
	texts    []codesystem.Text // its designations
}

// Len returns how many entries there are.
func (w *Whole) Len() int { return len(w.entries) }

// Size returns the approximate memory use in bytes.
func (w *Whole) Size() int { return w.size }

// Expand returns the ValueSet with a page of entries, in JSON. Words of the filter also stand for their synonyms, unless
// these are nil. More than limit entries are too costly.
func (w *Whole) Expand(p Page, synonyms *textindex.Synonyms, limit int) ([]byte, error) {
	page := w.page(p, synonyms)
	if len(page.entries) > limit {
		return nil, tooCostly(w.definition(), limit)
	}
	dst := append(make([]byte, 0, 1024+len(page.entries)*(1+w.size/(1+len(w.entries)))), '{')
	for _, m := range w.head {
		dst = append(m.Append(dst), ',')
	}
	dst = append(dst, `"expansion":{"identifier":"`...)
	dst = w.appendIdentifier(dst, p)
	dst = append(dst, '"')
	for _, m := range w.expansion {
		dst = m.Append(append(dst, ','))
	}
	dst = strconv.AppendInt(append(dst, `,"total":`...), int64(page.total), 10)
	dst = appendNumber(append(dst, `,"offset":`...), p.Offset)
	dst = w.appendParameters(dst, p, page.corrected)
	list := fhirjson.Array{Name: "contains"}
	for _, doc := range page.entries {
		dst = append(list.Next(dst), w.entries[doc].raw...)
	}
	return append(list.End(dst), '}', '}'), nil
}

// foundPage is the entries of a page, how many there are in all, and the filter without typos; "" if it has none.
type foundPage struct {
	entries   []uint32
	total     int
	corrected string
}

// page returns a page.
func (w *Whole) page(p Page, synonyms *textindex.Synonyms) (page foundPage) {
	filter := textindex.NewFilter(p.Filter, synonyms)
	if filter == nil {
		from, to := p.window(len(w.entries))
		for doc := from; doc < to; doc++ {
			page.entries = append(page.entries, uint32(doc))
		}
		page.total = len(w.entries)
		return page
	}
	from, to := p.window(maxInt32)
	parts := []textindex.Part{{Corpus: (*wholeCorpus)(w), Compounds: w.compounds, Index: w.index}}
	hits, total, _ := textindex.Search(parts, filter, from, to, nil) // only spend can fail
	for _, h := range hits {
		page.entries = append(page.entries, h.Doc)
	}
	page.total, page.corrected = total, filter.Corrected()
	return page
}

// definition returns the value set to name in errors.
func (w *Whole) definition() *definitions.ValueSet {
	vs := new(definitions.ValueSet)
	for _, m := range w.head {
		if m.Name == "url" {
			vs.URL = string(bytes.Trim(m.Value, `"`))
		}
	}
	return vs
}

// appendParameters appends expansion.parameter: those of the page, and those from the other server.
func (w *Whole) appendParameters(dst []byte, p Page, corrected string) []byte {
	list := parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	if p.Filter != "" {
		list.text("filter", "valueString", p.Filter)
	}
	if corrected != "" {
		list.text("corrected-filter", "valueString", corrected)
	}
	list.number("offset", p.Offset)
	list.number("count", p.Count)
	for _, raw := range w.parameters {
		list.dst = append(list.list.Next(list.dst), raw...)
	}
	return list.list.End(list.dst)
}

// appendIdentifier appends an identifier for a page; the other server's was for its own page.
func (w *Whole) appendIdentifier(dst []byte, p Page) []byte {
	name := append(append(bytes.Clone(expansionNamespace[:]), w.digest[:]...), p.Filter...)
	name = appendNumber(append(name, 0), p.Offset)
	if p.Count != nil {
		name = appendNumber(append(name, 0), p.Count)
	}
	return appendUUID(dst, name)
}

// wholeCorpus makes the entries of a Whole searchable.
type wholeCorpus Whole

// Len implements [textindex.Corpus], as do the methods below.
func (c *wholeCorpus) Len() int               { return len(c.entries) }
func (c *wholeCorpus) Code(doc uint32) []byte { return c.entries[doc].code }
func (c *wholeCorpus) Rank(doc uint32) uint32 { return c.ranks[doc] }
func (c *wholeCorpus) Language() string       { return c.languages.First() }

// Parent implements [textindex.Terms], as do the methods below. The other server's hierarchy is unknown.
func (c *wholeCorpus) Parent(uint32) (uint32, bool) { return 0, false }
func (c *wholeCorpus) Abstract(doc uint32) bool     { return c.entries[doc].abstract }
func (c *wholeCorpus) Inactive(doc uint32) bool     { return c.entries[doc].inactive }
func (c *wholeCorpus) Weight(uint32) float64        { return 0 }

func (c *wholeCorpus) Display(doc uint32) []byte {
	if e := &c.entries[doc]; len(e.display) > 0 {
		return e.display
	}
	return c.entries[doc].code
}

func (c *wholeCorpus) AppendOthers(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	return c.languages.AppendSearched(dst, c.entries[doc].texts, "")
}

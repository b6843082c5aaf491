package expansion

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// FullExpansion is a full expansion from another server. It can be searched by [textindex.Rule] and paged. Entries keep the
// JSON of that server. Create it with a [FullExpansionBuilder]. It is safe for concurrent use.
type FullExpansion struct {
	members    []fhirjson.Member // members of the ValueSet, except expansion
	expansion  []fhirjson.Member // members of expansion, except contains, total, offset and parameter
	parameters [][]byte          // expansion.parameter, except paging parameters
	entries    []fullEntry
	languages  codesystem.Languages
	index      *textindex.Index     // nil if there are few entries
	compounds  *textindex.Compounds // compounds in the entries; nil if there is an index
	ranks      []uint32             // search rank of each entry
	digest     [sha256.Size]byte
	size       int
}

// fullEntry is an entry of expansion.contains.
type fullEntry struct {
	raw      []byte // JSON of the entry
	code     []byte
	display  []byte
	inactive bool
	abstract bool
	texts    []codesystem.Text // display and designations, for the search
}

// Len returns the number of entries.
func (w *FullExpansion) Len() int { return len(w.entries) }

// Size returns the approximate size in bytes.
func (w *FullExpansion) Size() int { return w.size }

// Expand returns the ValueSet as JSON with a page of entries. synonyms applies to the words of the filter; nil means no
// synonyms. A page of more than limit entries is an error.
func (w *FullExpansion) Expand(p Page, synonyms *textindex.Synonyms, limit int) ([]byte, error) {
	page := w.findPage(p, synonyms)
	if len(page.entries) > limit {
		return nil, newTooCostlyError(w.errorDefinition(), limit)
	}
	dst := append(make([]byte, 0, 1024+len(page.entries)*(1+w.size/(1+len(w.entries)))), '{')
	for _, m := range w.members {
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

// foundPage contains the entries on a page, the total, and the corrected filter ("" if nothing was corrected).
type foundPage struct {
	entries   []uint32
	total     int
	corrected string
}

// findPage returns the entries that match the filter and are on the page.
func (w *FullExpansion) findPage(p Page, synonyms *textindex.Synonyms) (page foundPage) {
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
	parts := []textindex.Part{{Corpus: (*fullCorpus)(w), Compounds: w.compounds, Index: w.index}}
	hits, total, _ := textindex.Search(parts, filter, from, to, nil) // Search returns errors only from spend, which is nil
	for _, h := range hits {
		page.entries = append(page.entries, h.Doc)
	}
	page.total, page.corrected = total, filter.Corrected()
	return page
}

// errorDefinition returns a value set with only the URL, for error messages.
func (w *FullExpansion) errorDefinition() *definitions.ValueSet {
	vs := new(definitions.ValueSet)
	for _, m := range w.members {
		if m.Name == "url" {
			vs.URL = string(bytes.Trim(m.Value, `"`))
		}
	}
	return vs
}

// appendParameters appends expansion.parameter, which contains the parameters of the page and those of the other server.
func (w *FullExpansion) appendParameters(dst []byte, p Page, corrected string) []byte {
	list := parameterList{dst: dst, list: fhirjson.Array{Name: "parameter"}}
	if p.Filter != "" {
		list.addText("filter", "valueString", p.Filter)
	}
	if corrected != "" {
		list.addText("corrected-filter", "valueString", corrected)
	}
	list.addNumber("offset", p.Offset)
	list.addNumber("count", p.Count)
	for _, raw := range w.parameters {
		list.dst = append(list.list.Next(list.dst), raw...)
	}
	return list.list.End(list.dst)
}

// appendIdentifier appends an identifier for the page, because the other server's identifier is for a different page.
func (w *FullExpansion) appendIdentifier(dst []byte, p Page) []byte {
	name := append(append(bytes.Clone(expansionNamespace[:]), w.digest[:]...), p.Filter...)
	name = appendNumber(append(name, 0), p.Offset)
	if p.Count != nil {
		name = appendNumber(append(name, 0), p.Count)
	}
	return appendUUID(dst, name)
}

// fullCorpus presents a FullExpansion as a search corpus.
type fullCorpus FullExpansion

// Len and the following methods implement [textindex.Corpus].
func (c *fullCorpus) Len() int               { return len(c.entries) }
func (c *fullCorpus) Code(doc uint32) []byte { return c.entries[doc].code }
func (c *fullCorpus) Rank(doc uint32) uint32 { return c.ranks[doc] }
func (c *fullCorpus) Language() string       { return c.languages.First() }

// Parent and the following methods implement [textindex.Terms]. Parent always returns false because the hierarchy is unknown.
func (c *fullCorpus) Parent(uint32) (uint32, bool) { return 0, false }
func (c *fullCorpus) Abstract(doc uint32) bool     { return c.entries[doc].abstract }
func (c *fullCorpus) Inactive(doc uint32) bool     { return c.entries[doc].inactive }
func (c *fullCorpus) Weight(uint32) float64        { return 0 }

func (c *fullCorpus) Display(doc uint32) []byte {
	if e := &c.entries[doc]; len(e.display) > 0 {
		return e.display
	}
	return c.entries[doc].code
}

func (c *fullCorpus) AppendOtherTexts(dst [][]byte, doc uint32) (others [][]byte, foreign int) {
	return c.languages.AppendSearchable(dst, c.entries[doc].texts, "")
}

// maxNesting is the maximum nesting depth of entries.
const maxNesting = 64

// pageReader holds the state of parsing one page.
type pageReader struct {
	builder       *FullExpansionBuilder
	total, offset int
	entries       []fullEntry
	keys          []string
	depth         int
}

// storeMember stores a member of the first page unchanged, and skips it on other pages.
func (x *pageReader) storeMember(r *fhirjson.Reader, name string, list *[]fhirjson.Member) error {
	if x.builder.pages > 0 {
		return r.Skip()
	}
	_, err := r.ReadMember(name, list)
	return err
}

func (x *pageReader) readMember(r *fhirjson.Reader, name string) error {
	switch name {
	case "identifier":
		return r.Skip()
	case "total":
		return x.readNumber(r, &x.total)
	case "offset":
		return x.readNumber(r, &x.offset)
	case "contains":
		return r.Array(func() error { return x.readEntry(r) })
	case "parameter":
		return r.Array(func() error { return x.readParameter(r) })
	case "extension":
		return x.readExtensions(r)
	}
	return x.storeMember(r, name, &x.builder.expansion.expansion)
}

func (x *pageReader) readNumber(r *fhirjson.Reader, n *int) error {
	text, err := r.Value('0')
	if err != nil {
		return err
	}
	value, err := parameters.ParseNumber(&parameters.Input{Name: "number", Value: string(text)})
	if err == nil {
		*n = *value
	}
	return err
}

// readExtensions stores the extensions of the expansion. It returns an error if they mark the expansion as incomplete.
func (x *pageReader) readExtensions(r *fhirjson.Reader) error {
	raw, err := r.Value(0)
	if err != nil {
		return err
	}
	if bytes.Contains(raw, []byte("valueset-toocostly")) {
		return errIncompleteExpansion
	}
	if value := raw.Clone(); x.builder.pages == 0 {
		x.builder.expansion.expansion = append(x.builder.expansion.expansion, fhirjson.Member{Name: "extension", Value: value})
	}
	return nil
}

// pagingParameters lists the parameters with values that differ between pages.
var pagingParameters = []string{"filter", "offset", "count"}

func (x *pageReader) readParameter(r *fhirjson.Reader) error {
	value, err := r.CompactValue('{')
	if err != nil {
		return err
	}
	var in parameters.Input
	inner := fhirjson.NewValueReader(value)
	if err := inner.Object(func(name []byte) error { return in.ReadMember(inner, name, 0) }); err != nil {
		return err
	}
	b := x.builder
	if in.Name == "displayLanguage" {
		b.language = in.Value
	}
	if b.pages == 0 && !slices.Contains(pagingParameters, in.Name) && (!b.OmitDesignations || in.Name != "includeDesignations") {
		b.expansion.parameters = append(b.expansion.parameters, value)
	}
	return nil
}

// readEntry reads an entry of expansion.contains and its nested entries.
func (x *pageReader) readEntry(r *fhirjson.Reader) error {
	raw, err := r.Value('{')
	if err != nil {
		return err
	}
	var e fullEntry
	var key entryKey
	within, err := x.readMembers(&e, &key, raw.Clone())
	if err != nil {
		return err
	}
	if len(e.code) == 0 {
		return fmt.Errorf("%w: an entry has no code", errIncompleteExpansion) // a heading: the expansion is a tree, not pageable
	}
	e.raw = slices.Clip(append(e.raw, '}'))
	x.builder.expansion.size += 2*len(raw) + 128
	x.entries = append(x.entries, e)
	x.keys = append(x.keys, key.system+"\x00"+key.version+"\x00"+string(e.code))
	if within == nil {
		return nil
	}
	if x.depth++; x.depth > maxNesting {
		return fmt.Errorf("%w: entries are nested more than %d deep", errIncompleteExpansion, maxNesting)
	}
	defer func() { x.depth-- }()
	nested := fhirjson.NewValueReader(within)
	return nested.Array(func() error { return x.readEntry(nested) })
}

// entryKey, together with a code, identifies an entry.
type entryKey struct{ system, version string }

// readMembers reads the members of an entry and returns its nested entries as JSON.
func (x *pageReader) readMembers(e *fullEntry, key *entryKey, raw jsontext.Value) (within jsontext.Value, err error) {
	r := fhirjson.NewReader(bytes.NewReader(raw))
	err = r.Object(func(name []byte) error {
		member := string(name)
		value, err := r.Value(0)
		if err != nil {
			return err
		}
		if member == "contains" {
			within = value.Clone()
			return nil
		}
		x.builder.hasDesignations = x.builder.hasDesignations || member == "designation"
		if member != "designation" || !x.builder.OmitDesignations {
			e.appendRawMember(member, value)
		}
		return e.readMember(fhirjson.NewValueReader(value), member, key)
	})
	return within, err
}

func (e *fullEntry) appendRawMember(name string, value jsontext.Value) {
	open := byte(',')
	if len(e.raw) == 0 {
		open = '{'
	}
	value = value.Clone()
	_ = value.Compact() // cannot fail, because value was parsed before
	e.raw = fhirjson.Member{Name: name, Value: value}.Append(append(e.raw, open))
}

// readMember reads a member that search uses, and ignores others.
func (e *fullEntry) readMember(r *fhirjson.Reader, name string, key *entryKey) error {
	var text string
	switch name {
	case "system":
		return r.ReadString(&key.system)
	case "version":
		return r.ReadString(&key.version)
	case "inactive":
		return r.ReadBool(&e.inactive)
	case "abstract":
		return r.ReadBool(&e.abstract)
	case "code":
		err := r.ReadString(&text)
		e.code = []byte(text)
		return err
	case "display":
		err := r.ReadString(&text)
		e.display = []byte(text)
		e.texts = append(e.texts, codesystem.Text{Value: e.display, IsDisplay: true})
		return err
	case "designation":
		return r.Array(func() error { return e.readDesignation(r) })
	}
	return nil
}

// readDesignation reads an entry of contains.designation. A designation that is preferred for its language is treated as a
// display, which is always searched.
func (e *fullEntry) readDesignation(r *fhirjson.Reader) error {
	var t codesystem.Text
	err := r.Object(func(name []byte) error {
		switch string(name) {
		case "language":
			return r.ReadString(&t.Language)
		case "value":
			text, err := r.Text()
			t.Value = bytes.Clone(text)
			return err
		case "use":
			return r.Strings(fhirjson.String{Name: "system", Destination: &t.Use.System}, fhirjson.String{Name: "code", Destination: &t.Use.Code})
		}
		return r.Skip()
	})
	t.IsDisplay = t.Use.System == codesystem.PreferredForLanguage.System && t.Use.Code == codesystem.PreferredForLanguage.Code
	e.texts = append(e.texts, t)
	return err
}

// FullExpansionBuilder builds a [FullExpansion] from the pages of an expansion. It returns an error if pages are inconsistent,
// which happens with servers that do not have a stable total or order.
type FullExpansionBuilder struct {
	// Languages is the requested list of languages. It is used if the pages contain no displayLanguage.
	Languages string

	// OmitDesignations removes designations from entries. They are still searched.
	OmitDesignations bool

	expansion       FullExpansion
	total           int // total in the pages; -1 if they have none
	pages           int
	seen            map[string]bool
	hasDesignations bool
	isDone          bool
	language        string
}

// ErrInconsistentPages is wrapped by errors about pages that contradict each other.
var ErrInconsistentPages = errors.New("the pages of the expansion are inconsistent")

var errIncompleteExpansion = errors.New("the expansion is incomplete")

// Offset returns the offset of the next page to request, which is the number of entries added so far.
func (b *FullExpansionBuilder) Offset() int { return len(b.expansion.entries) }

// Total returns the expected number of entries. It returns false if the number is unknown.
func (b *FullExpansionBuilder) Total() (int, bool) { return b.total, b.pages > 0 && b.total >= 0 }

// Size returns the approximate size of the entries added so far, in bytes.
func (b *FullExpansionBuilder) Size() int { return b.expansion.size }

// HasDesignations reports whether any entry has designations.
func (b *FullExpansionBuilder) HasDesignations() bool { return b.hasDesignations }

// Add adds the next page, a ValueSet in JSON. count is the value with which it was requested. more reports whether there are
// more pages.
func (b *FullExpansionBuilder) Add(page []byte, count int) (more bool, err error) {
	x := pageReader{builder: b, total: -1, offset: -1}
	r := fhirjson.NewValueReader(page)
	err = r.Object(func(name []byte) error {
		if string(name) == "expansion" {
			return r.Object(func(name []byte) error { return x.readMember(r, string(name)) })
		}
		return x.storeMember(r, string(name), &b.expansion.members)
	})
	if err != nil {
		return false, fmt.Errorf("page at offset %d: %w", b.Offset(), err)
	}
	return b.addPage(&x, count)
}

// addPage returns an error if a page is inconsistent with previous pages. Otherwise, it adds the entries of the page.
func (b *FullExpansionBuilder) addPage(x *pageReader, count int) (more bool, err error) {
	if b.seen == nil {
		b.seen = make(map[string]bool)
	}
	at := len(b.expansion.entries)
	switch {
	case b.pages > 0 && x.total != b.total:
		return false, fmt.Errorf("%w: total changed from %d to %d", ErrInconsistentPages, b.total, x.total)
	case x.offset >= 0 && x.offset != at:
		return false, fmt.Errorf("%w: requested offset %d, got %d", ErrInconsistentPages, at, x.offset)
	}
	for i, key := range x.keys {
		if b.seen[key] {
			return false, fmt.Errorf("%w: duplicate entry %d", ErrInconsistentPages, at+i)
		}
		b.seen[key] = true
	}
	b.total = x.total
	b.pages++
	b.expansion.entries = append(b.expansion.entries, x.entries...)
	return b.hasMore(len(x.entries), count)
}

// hasMore reports whether more pages follow after the last page, which had n entries.
func (b *FullExpansionBuilder) hasMore(n, count int) (bool, error) {
	have := len(b.expansion.entries)
	switch {
	case b.total >= 0 && have > b.total:
		return false, fmt.Errorf("%w: got %d entries of %d", ErrInconsistentPages, have, b.total)
	case b.total >= 0 && have < b.total && n == 0:
		return false, fmt.Errorf("%w: no entries after %d of %d", ErrInconsistentPages, have, b.total)
	case b.total < 0 && n > count:
		return false, fmt.Errorf("%w: got %d of %d requested entries, and no total", ErrInconsistentPages, n, count)
	}
	b.isDone = have == b.total || b.total < 0 && n < count
	return !b.isDone, nil
}

// Build returns the full expansion once the last page has been added.
func (b *FullExpansionBuilder) Build() (*FullExpansion, error) {
	if !b.isDone {
		return nil, errIncompleteExpansion
	}
	w := &b.expansion
	w.languages = codesystem.ParseLanguages(cmp.Or(b.language, b.Languages))
	hash := sha256.New()
	for i := range w.entries {
		hash.Write(w.entries[i].raw)
	}
	for _, m := range w.members {
		hash.Write(m.Value)
	}
	hash.Sum(w.digest[:0])
	w.ranks = textindex.Ranks((*fullCorpus)(w))
	w.size += 4 * len(w.ranks)
	if len(w.entries) > compose.MaxScanned {
		w.index = textindex.New((*fullCorpus)(w))
		w.size += w.index.Bytes()
	} else {
		w.compounds = textindex.NewCompounds((*fullCorpus)(w))
	}
	return w, nil
}

package terminology

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// WholeBuilder puts a [Whole] together from the pages of an expansion. Where these contradict each other, as
// those of a server do that counts, pages or orders in no fixed way, there is none.
type WholeBuilder struct {
	// Languages is the list of languages that the displays were asked in, where the pages do not say it.
	Languages string

	// Terse leaves designations out of the answers, for who did not ask for them. They are looked at by the
	// search nevertheless.
	Terse bool

	whole        Whole
	total        int // that the pages tell; -1: they do not
	pages        int
	seen         map[string]bool
	designations bool
	done         bool
	language     string
}

// ErrContradiction is wrapped in the error for pages that do not fit together.
var ErrContradiction = errors.New("the pages of the expansion contradict each other")

// errNotWhole is the error for an expansion that is not all there is.
var errNotWhole = errors.New("the expansion is not whole")

// Offset returns from where on the next page is to be asked for.
func (b *WholeBuilder) Offset() int { return len(b.whole.entries) }

// Total returns how many entries there are to be; false where that is not known.
func (b *WholeBuilder) Total() (int, bool) { return b.total, b.pages > 0 && b.total >= 0 }

// Size returns about how much memory is used, in bytes.
func (b *WholeBuilder) Size() int { return b.whole.size }

// Designations reports whether any entry has designations.
func (b *WholeBuilder) Designations() bool { return b.designations }

// Add adds the next page: a ValueSet in JSON, that was asked for with count entries. It reports whether
// there are more to be asked for.
func (b *WholeBuilder) Add(page []byte, count int) (more bool, err error) {
	x := wholePage{builder: b, total: -1, offset: -1}
	r := newReader(bytes.NewReader(page))
	err = r.object(func(name []byte) error {
		if string(name) == "expansion" {
			return r.object(func(name []byte) error { return x.member(r, string(name)) })
		}
		return x.keep(r, string(name), &b.whole.head)
	})
	if err != nil {
		return false, fmt.Errorf("page from %d on: %w", b.Offset(), err)
	}
	return b.check(&x, count)
}

// check checks that a page fits to those before, and takes over its entries.
func (b *WholeBuilder) check(x *wholePage, count int) (more bool, err error) {
	if b.seen == nil {
		b.seen = make(map[string]bool)
	}
	at := len(b.whole.entries)
	switch {
	case b.pages > 0 && x.total != b.total:
		return false, fmt.Errorf("%w: total was %d, and is %d", ErrContradiction, b.total, x.total)
	case x.offset >= 0 && x.offset != at:
		return false, fmt.Errorf("%w: asked from %d on, answered from %d on", ErrContradiction, at, x.offset)
	}
	for i, key := range x.keys {
		if b.seen[key] {
			return false, fmt.Errorf("%w: entry %d is there twice", ErrContradiction, at+i)
		}
		b.seen[key] = true
	}
	b.total = x.total
	b.pages++
	b.whole.entries = append(b.whole.entries, x.entries...)
	return b.more(len(x.entries), count)
}

// more reports whether there are more pages to be asked for, after one with n entries.
func (b *WholeBuilder) more(n, count int) (bool, error) {
	have := len(b.whole.entries)
	switch {
	case b.total >= 0 && have > b.total:
		return false, fmt.Errorf("%w: %d entries of %d", ErrContradiction, have, b.total)
	case b.total >= 0 && have < b.total && n == 0:
		return false, fmt.Errorf("%w: nothing after %d of %d", ErrContradiction, have, b.total)
	case b.total < 0 && n > count:
		return false, fmt.Errorf("%w: %d entries where %d were asked for, and no total", ErrContradiction, n, count)
	}
	b.done = have == b.total || b.total < 0 && n < count
	return !b.done, nil
}

// Whole returns the expansion, once there are no more pages to add.
func (b *WholeBuilder) Whole() (*Whole, error) {
	if !b.done {
		return nil, errNotWhole
	}
	w := &b.whole
	language := b.language
	if language == "" {
		language = b.Languages
	}
	w.languages = parseLanguages(language)
	hash := sha256.New()
	for i := range w.entries {
		hash.Write(w.entries[i].raw)
	}
	for _, m := range w.head {
		hash.Write(m.value)
	}
	hash.Sum(w.digest[:0])
	if len(w.entries) > scanned {
		w.index = newIndex((*wholeCorpus)(w))
	}
	return w, nil
}

// maxNesting bounds how deep entries may stand within each other.
const maxNesting = 64

// wholePage is a page while it is read.
type wholePage struct {
	builder       *WholeBuilder
	total, offset int
	entries       []wholeEntry
	keys          []string
	depth         int
}

// keep keeps a member of the first page as it is.
func (x *wholePage) keep(r *reader, name string, list *[]member) error {
	raw, err := r.dec.ReadValue()
	if err != nil || x.builder.pages > 0 {
		return err
	}
	value := raw.Clone()
	if err := value.Compact(); err != nil {
		return err
	}
	*list = append(*list, member{name: name, value: value})
	return nil
}

// member reads one member of the expansion.
func (x *wholePage) member(r *reader, name string) error {
	switch name {
	case "identifier":
		return r.skip()
	case "total":
		return x.number(r, &x.total)
	case "offset":
		return x.number(r, &x.offset)
	case "contains":
		return r.array(func() error { return x.entry(r) })
	case "parameter":
		return r.array(func() error { return x.parameter(r) })
	case "extension":
		return x.extensions(r)
	}
	return x.keep(r, name, &x.builder.whole.expansion)
}

// number reads a number from 0 up.
func (x *wholePage) number(r *reader, n *int) error {
	text, err := r.value('0')
	if err != nil {
		return err
	}
	in := input{name: "number", value: string(text)}
	value, err := number(&in)
	if err == nil {
		*n = *value
	}
	return err
}

// extensions reads the extensions of the expansion. One says that the server left entries out.
func (x *wholePage) extensions(r *reader) error {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return err
	}
	if bytes.Contains(raw, []byte("valueset-toocostly")) {
		return errNotWhole
	}
	if value := raw.Clone(); x.builder.pages == 0 {
		x.builder.whole.expansion = append(x.builder.whole.expansion, member{name: "extension", value: value})
	}
	return nil
}

// paging are the parameters that differ between pages, or were not asked for by the client.
var paging = []string{"filter", "offset", "count"}

// parameter reads one of expansion.parameter.
func (x *wholePage) parameter(r *reader) error {
	raw, err := r.value('{')
	if err != nil {
		return err
	}
	value := raw.Clone()
	if err := value.Compact(); err != nil {
		return err
	}
	var in input
	inner := newReader(bytes.NewReader(value))
	if err := inner.object(func(name []byte) error { return inner.inputMember(&in, name, 0) }); err != nil {
		return err
	}
	b := x.builder
	if in.name == "displayLanguage" {
		b.language = in.value
	}
	if b.pages == 0 && !slices.Contains(paging, in.name) && (!b.Terse || in.name != "includeDesignations") {
		b.whole.parameters = append(b.whole.parameters, value)
	}
	return nil
}

// entry reads one of expansion.contains, and after it those that stand in it.
func (x *wholePage) entry(r *reader) error {
	raw, err := r.value('{')
	if err != nil {
		return err
	}
	e, within := wholeEntry{}, jsontext.Value(nil)
	var system, version string
	inner := newReader(bytes.NewReader(raw.Clone()))
	err = inner.object(func(name []byte) error {
		member := string(name)
		value, err := inner.dec.ReadValue()
		if err != nil {
			return err
		}
		if member == "contains" {
			within = value.Clone()
			return nil
		}
		x.builder.designations = x.builder.designations || member == "designation"
		if member != "designation" || !x.builder.Terse {
			e.keep(member, value)
		}
		return e.read(newReader(bytes.NewReader(value)), member, &system, &version)
	})
	if err != nil {
		return err
	}
	if len(e.code) == 0 {
		return fmt.Errorf("%w: an entry without a code", errNotWhole) // a heading, which only a tree can show
	}
	e.raw = slices.Clip(append(e.raw, '}'))
	x.builder.whole.size += 2*len(raw) + 128
	x.entries = append(x.entries, e)
	x.keys = append(x.keys, system+"\x00"+version+"\x00"+string(e.code))
	if within == nil {
		return nil
	}
	if x.depth++; x.depth > maxNesting {
		return fmt.Errorf("%w: entries within each other more than %d deep", errNotWhole, maxNesting)
	}
	defer func() { x.depth-- }()
	nested := newReader(bytes.NewReader(within))
	return nested.array(func() error { return x.entry(nested) })
}

// keep appends a member as it is.
func (e *wholeEntry) keep(name string, value jsontext.Value) {
	open := byte(',')
	if len(e.raw) == 0 {
		open = '{'
	}
	value = value.Clone()
	_ = value.Compact() // it was read, so it is JSON
	e.raw = member{name: name, value: value}.append(append(e.raw, open))
}

// read reads a member that the search needs.
func (e *wholeEntry) read(r *reader, name string, system, version *string) error {
	var text string
	switch name {
	case "system":
		return r.string(system)
	case "version":
		return r.string(version)
	case "inactive":
		return r.bool(&e.inactive)
	case "code":
		err := r.string(&text)
		e.code = []byte(text)
		return err
	case "display":
		err := r.string(&text)
		e.display = []byte(text)
		e.texts = append(e.texts, shownText{value: e.display, display: true})
		return err
	case "designation":
		return r.array(func() error { return e.designation(r) })
	}
	return nil
}

// designation reads one of contains.designation. The display in another language is one by which a concept
// is found as well, whatever language is asked for.
func (e *wholeEntry) designation(r *reader) error {
	var t shownText
	err := r.object(func(name []byte) error {
		switch string(name) {
		case "language":
			return r.string(&t.language)
		case "value":
			text, err := r.text()
			t.value = bytes.Clone(text)
			return err
		case "use":
			return r.object(func(name []byte) error {
				switch string(name) {
				case "system":
					return r.string(&t.use.system)
				case "code":
					return r.string(&t.use.code)
				}
				return r.skip()
			})
		}
		return r.skip()
	})
	t.display = t.use.system == preferredForLanguage.system && t.use.code == preferredForLanguage.code
	e.texts = append(e.texts, t)
	return err
}

package expansion

import (
	"cmp"
	"crypto/sha256"
	"fmt"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Offset returns the offset of the next page to ask for.
func (b *WholeBuilder) Offset() int { return len(b.whole.entries) }

// Total returns the number of entries to expect, if known.
func (b *WholeBuilder) Total() (int, bool) { return b.total, b.pages > 0 && b.total >= 0 }

// Size returns the approximate memory use in bytes.
func (b *WholeBuilder) Size() int { return b.whole.size }

// Designations reports whether any entry has designations.
func (b *WholeBuilder) Designations() bool { return b.designations }

// Add adds the next page, a ValueSet in JSON that was asked for with count entries. It reports whether there are more.
func (b *WholeBuilder) Add(page []byte, count int) (more bool, err error) {
	x := wholePage{builder: b, total: -1, offset: -1}
	r := fhirjson.ReaderOf(page)
	err = r.Object(func(name []byte) error {
		if string(name) == "expansion" {
			return r.Object(func(name []byte) error { return x.member(r, string(name)) })
		}
		return x.keep(r, string(name), &b.whole.head)
	})
	if err != nil {
		return false, fmt.Errorf("page from %d on: %w", b.Offset(), err)
	}
	return b.check(&x, count)
}

// check checks that a page fits those before, and takes its entries.
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

// more reports whether there are more pages after one with n entries.
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

// Whole returns the expansion once there are no more pages to add.
func (b *WholeBuilder) Whole() (*Whole, error) {
	if !b.done {
		return nil, errNotWhole
	}
	w := &b.whole
	w.languages = codesystem.ParseLanguages(cmp.Or(b.language, b.Languages))
	hash := sha256.New()
	for i := range w.entries {
		hash.Write(w.entries[i].raw)
	}
	for _, m := range w.head {
		hash.Write(m.Value)
	}
	hash.Sum(w.digest[:0])
	w.ranks = textindex.Ranks((*wholeCorpus)(w))
	w.size += 4 * len(w.ranks)
	if len(w.entries) > compose.Scanned {
		w.index = textindex.New((*wholeCorpus)(w))
		w.size += w.index.Bytes()
	} else {
		w.compounds = textindex.NewCompounds((*wholeCorpus)(w))
	}
	return w, nil
}

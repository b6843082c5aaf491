package terminology

import (
	"bytes"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// newExpansion expands a value set.
func newExpansion(l *Set, expansions *codeListCache, q Query, b *budget) (*Expansion, error) {
	x := &Expansion{query: q}
	err := x.query.check()
	if err != nil {
		return nil, err
	}
	if x.library, x.valueSet, err = valueSetFor(l, &x.query.ValueSetRef, &x.query.Rules, b); err != nil {
		return nil, err
	}
	if x.library.use(func() { err = x.expand(expansions, b) }); err != nil {
		return nil, err
	}
	return x, nil
}

// Expansion is the requested page of a value set's expansion. It is safe for concurrent use.
type Expansion struct {
	library   *Set
	valueSet  *valueSet
	list      *codeList
	query     Query // with the value set's own parameters
	languages codesystem.Languages
	page      []entry
	total     int
	corrected string // the filter without typos; "" if it has none
	explained *explanations
	detailed  bool // an entry may need more than code and display
}

func (x *Expansion) expand(expansions *codeListCache, b *budget) (err error) {
	q := &x.query
	if err := q.adopt(x.valueSet.defaults); err != nil {
		return err
	}
	e := &expander{library: x.library, cache: expansions, rules: &q.Rules, budget: b}
	if x.list, err = e.codes(x.valueSet); err != nil {
		return err
	}
	if languages := q.Language.preferred(x.valueSet); languages != "" {
		x.languages = codesystem.ParseLanguages(languages)
	}
	if err := x.choosePage(b); err != nil {
		return err
	}
	if limit := q.Limits.entries(); len(x.page) > limit && q.subset.hasCodes() {
		return tooCostly(x.valueSet, limit)
	}
	supplements := len(x.list.supplements)
	if err := b.spend(len(x.page) * (supplements + (len(q.Designations)+len(q.Properties))/askedPerStep)); err != nil {
		return err
	}
	x.detailed = q.wantsDesignations() || len(q.Properties) > 0 || !x.languages.None() || supplements > 0
	return nil
}

// askedPerStep is the number of requested designations and properties compared in one step, for each code.
const askedPerStep = 4

// choosePage finds the requested entries, and how many match in all.
func (x *Expansion) choosePage(b *budget) (err error) {
	if filter := textindex.NewFilterWith(x.query.Filter, x.library.Synonyms()); filter != nil {
		from, to := x.query.window(maxInt32)
		if x.query.wantsExplanations() && x.query.subset.hasCodes() {
			err = x.searchExplained(filter, from, to, b)
		} else {
			x.page, x.total, err = search(x.library, x.list, filter, x.languages.List(), from, to, b)
		}
		x.corrected = filter.Corrected()
		return err
	}
	from, to := x.query.window(len(x.list.entries))
	x.page, x.total = x.list.entries[from:to], len(x.list.entries)
	return nil
}

// tooCostly is the error for too large an answer.
func tooCostly(vs *valueSet, limit int) error {
	return issue(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); ask for a part, with offset and count", vs.canonical(), limit))
}

// Code is one of ValueSet.expansion.contains.
type Code struct {
	// System is the url of the code system, and Version its version if the value set has codes of several.
	System, Version string

	// Code is the code, and Display its display in the requested language, if there is one.
	Code, Display string

	// Abstract says that a user must not choose the code, and Inactive that it should no longer be used.
	Abstract, Inactive bool
}

// Total returns the number of codes on all pages.
func (x *Expansion) Total() int { return x.total }

// Len returns the number of codes on the page.
func (x *Expansion) Len() int { return len(x.page) }

// Timestamp returns when the library was loaded.
func (x *Expansion) Timestamp() time.Time { return x.library.loaded }

// Identifier returns expansion.identifier, which is the same for the same query to the same definitions.
func (x *Expansion) Identifier() (identifier string) {
	x.library.use(func() { identifier = string(newExpansionWriter(x, false).identifier) })
	return identifier
}

// Codes returns the codes of the page in order, children after their parents.
func (x *Expansion) Codes() iter.Seq[Code] {
	return func(yield func(Code) bool) {
		x.library.use(func() {
			for _, e := range x.page {
				if !yield(x.code(e)) {
					return
				}
			}
		})
	}
}

func (x *Expansion) code(e entry) Code {
	l := x.library
	flags := l.flags(e)
	c := Code{
		System: l.systems[l.systemOf(e)].url, Code: string(l.code(e)),
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
	if x.isVersioned(e) {
		c.Version = l.codeSystems[e.codeSystem].version
	}
	if x.hasOneText(e) {
		c.Display = string(l.display(e))
	} else if texts := x.texts(nil, e); x.languages.Preferred(texts) >= 0 {
		c.Display = string(texts[x.languages.Preferred(texts)].Value)
	}
	return c
}

// isVersioned reports whether an entry is shown with its version.
func (x *Expansion) isVersioned(e entry) bool { return x.list.versioned && e.isKnown() }

// hasOneText reports whether there is only one display to choose from.
func (x *Expansion) hasOneText(e entry) bool {
	return !x.detailed || e.listed == 0 && e.concept != none && !x.languages.Only && len(x.list.supplements) == 0 &&
		x.library.flags(e)&codesystem.FlagDesignated == 0
}

// texts appends the displays and designations of an entry.
func (x *Expansion) texts(dst []codesystem.Text, e entry) []codesystem.Text {
	return x.library.shownTexts(dst, x.library.locate(e), x.valueSet.language, x.list.supplements)
}

// Parameter is one of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is the name, and Value the value of whatever type, as text.
	Name, Value string
}

// Parameters returns expansion.parameter: what was asked for, the definitions used, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	var written []byte
	x.library.use(func() { written = newExpansionWriter(x, false).echo })
	_, array, _ := bytes.Cut(written, []byte{':'})
	r, list := fhirjson.ReaderOf(array), []Parameter{}
	_ = r.Array(func() error { // no error: this was written above
		var in input
		err := r.Object(func(name []byte) error { return in.member(r, name, 0) })
		list = append(list, Parameter{Name: in.name, Value: in.value})
		return err
	})
	return list
}

// AppendJSON appends the ValueSet with the expansion, as $expand answers a POST.
func (x *Expansion) AppendJSON(dst []byte) []byte {
	x.library.use(func() { dst = newExpansionWriter(x, false).append(dst) })
	return dst
}

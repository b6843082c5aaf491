package terminology

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// Expand answers ValueSet/$expand: it expands the value set that is meant and returns the page that is asked for.
// A failure is an [*Error], or the error of the context. It wraps [ErrUnknown], [ErrIncomplete] or [ErrUnsupported]
// where another server may be able to answer.
func (l *Library) Expand(ctx context.Context, q Query) (*Expansion, error) {
	x, b := &Expansion{query: q}, l.budget(ctx)
	err := x.query.check()
	if err != nil {
		return nil, err
	}
	if x.library, x.valueSet, err = l.valueSetFor(&x.query.ValueSetRef, &x.query.Rules, b); err != nil {
		return nil, err
	}
	if x.library.use(func() { err = x.expand(b) }); err != nil {
		return nil, err
	}
	return x, nil
}

// Expansion is what a value set expands to: the page of it that was asked for. It may be used by any number of
// goroutines.
type Expansion struct {
	library   *Library
	valueSet  *valueSet
	list      *codeList
	query     Query // with what the value set says for its own expansion
	languages codesystem.Languages
	page      []entry
	total     int
	detailed  bool // more than code and display may be wanted of every entry
}

// expand expands the value set and chooses the page.
func (x *Expansion) expand(b *budget) (err error) {
	q := &x.query
	if err := q.adopt(x.valueSet.defaults); err != nil {
		return err
	}
	e := &expander{library: x.library, rules: &q.Rules, budget: b}
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

// askedPerStep is how many of the designations and properties that a query asks for are looked through in one
// step, for each code of the answer.
const askedPerStep = 4

// choosePage finds the entries that were asked for, and how many match in all.
func (x *Expansion) choosePage(b *budget) (err error) {
	if filter := textindex.NewFilter(x.query.Filter); filter != nil {
		from, to := x.query.window(maxInt32)
		x.page, x.total, err = x.library.search(x.list, filter, x.languages.List(), from, to, b)
		return err
	}
	from, to := x.query.window(len(x.list.entries))
	x.page, x.total = x.list.entries[from:to], len(x.list.entries)
	return nil
}

// tooCostly is the error for an answer that would be too large.
func tooCostly(vs *valueSet, limit int) error {
	return issue(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); ask for a part, with offset and count", vs.canonical(), limit))
}

// Code is one of ValueSet.expansion.contains.
type Code struct {
	// System is the url of the code system.
	System string

	// Version is the version of the code system, where the value set has codes of several.
	Version string

	// Code is the code itself, and Display what is shown of it, in the language that was asked for; empty where there
	// is none.
	Code, Display string

	// Abstract says that the code is not to be chosen by a user, and Inactive that it should not be used any more.
	Abstract, Inactive bool
}

// Total returns how many codes there are, on all pages.
func (x *Expansion) Total() int { return x.total }

// Len returns how many codes there are on the page.
func (x *Expansion) Len() int { return len(x.page) }

// Timestamp returns when the library was loaded.
func (x *Expansion) Timestamp() time.Time { return x.library.loaded }

// Identifier returns what identifies the expansion. The same query to the same definitions has the same one.
func (x *Expansion) Identifier() (identifier string) {
	x.library.use(func() { identifier = string(newExpansionWriter(x, false).identifier) })
	return identifier
}

// Codes returns the codes of the page, in order. Codes that stand within others follow these.
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

// code returns what there is to tell of an entry.
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

// isVersioned reports whether the version of an entry's code system is told.
func (x *Expansion) isVersioned(e entry) bool { return x.list.versioned && e.concept != none }

// hasOneText reports whether there is only one display to show: no language was asked for, or the concept has no
// designations.
func (x *Expansion) hasOneText(e entry) bool {
	return !x.detailed || e.listed == 0 && e.concept != none && !x.languages.Only && len(x.list.supplements) == 0 &&
		x.library.flags(e)&codesystem.FlagDesignated == 0
}

// texts appends the displays and designations of an entry.
func (x *Expansion) texts(dst []codesystem.Text, e entry) []codesystem.Text {
	return x.library.shownTexts(dst, e, x.valueSet.language, x.list.supplements)
}

// Parameter is one of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is its name, and Value its value, of whatever type, as text.
	Name, Value string
}

// Parameters returns what was asked for, the definitions that were used, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	list := parameterList{told: []Parameter{}}
	x.library.use(func() { newExpansionWriter(x, false).listParameters(&list) })
	return list.told
}

// AppendJSON appends the ValueSet with the expansion, as $expand answers to a POST.
func (x *Expansion) AppendJSON(dst []byte) []byte {
	x.library.use(func() { dst = newExpansionWriter(x, false).append(dst) })
	return dst
}

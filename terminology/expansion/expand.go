package expansion

import (
	"bytes"
	"fmt"
	"iter"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// New expands a value set.
func New(l *definitions.Set, expansions *compose.CodeListCache, q Query, b *budget.Budget) (*Expansion, error) {
	x := &Expansion{query: q}
	err := x.query.Check()
	if err != nil {
		return nil, err
	}
	if x.Library, x.valueSet, err = compose.ValueSetFor(l, &x.query.ValueSetRef, &x.query.Rules, b); err != nil {
		return nil, err
	}
	if x.Library.Use(func() { err = x.expand(expansions, b) }); err != nil {
		return nil, err
	}
	return x, nil
}

// Expansion is the requested page of a value set's expansion. It is safe for concurrent use.
type Expansion struct {
	Library   *definitions.Set // the definitions
	valueSet  *definitions.ValueSet
	List      *compose.CodeList // all codes, of all pages
	query     Query             // with the value set's own parameters
	languages codesystem.Languages
	page      []definitions.Entry
	total     int
	corrected string // the filter without typos; "" if it has none
	explained *explanations
	detailed  bool // an entry may need more than code and display
}

func (x *Expansion) expand(expansions *compose.CodeListCache, b *budget.Budget) (err error) {
	q := &x.query
	if err := q.Adopt(x.valueSet.Defaults); err != nil {
		return err
	}
	e := &compose.Expander{Library: x.Library, Cache: expansions, Rules: &q.Rules, Budget: b}
	if x.List, err = e.Codes(x.valueSet); err != nil {
		return err
	}
	if languages := q.Language.Preferred(x.valueSet); languages != "" {
		x.languages = codesystem.ParseLanguages(languages)
	}
	if err := x.choosePage(b); err != nil {
		return err
	}
	if limit := q.Limits.Most(); len(x.page) > limit && q.subset.hasCodes() {
		return tooCostly(x.valueSet, limit)
	}
	supplements := len(x.List.Supplements)
	if err := b.Spend(len(x.page) * (supplements + (len(q.Designations)+len(q.Properties))/askedPerStep)); err != nil {
		return err
	}
	x.detailed = q.wantsDesignations() || len(q.Properties) > 0 || !x.languages.None() || supplements > 0
	return nil
}

// askedPerStep is the number of requested designations and properties compared in one step, for each code.
const askedPerStep = 4

// choosePage finds the requested entries, and how many match in all.
func (x *Expansion) choosePage(b *budget.Budget) (err error) {
	if filter := textindex.NewFilterWith(x.query.Filter, x.Library.Synonyms()); filter != nil {
		from, to := x.query.window(maxInt32)
		if x.query.wantsExplanations() && x.query.subset.hasCodes() {
			err = x.searchExplained(filter, from, to, b)
		} else {
			x.page, x.total, err = compose.Search(x.Library, x.List, filter, x.languages.List(), from, to, b)
		}
		x.corrected = filter.Corrected()
		return err
	}
	from, to := x.query.window(len(x.List.Entries))
	x.page, x.total = x.List.Entries[from:to], len(x.List.Entries)
	return nil
}

// tooCostly is the error for too large an answer.
func tooCostly(vs *definitions.ValueSet, limit int) error {
	return outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); ask for a part, with offset and count", vs.Canonical(), limit))
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

// Codes returns the codes of the page in order, children after their parents.
func (x *Expansion) Codes() iter.Seq[Code] {
	return func(yield func(Code) bool) {
		x.Library.Use(func() {
			for _, e := range x.page {
				if !yield(x.code(e)) {
					return
				}
			}
		})
	}
}

func (x *Expansion) code(e definitions.Entry) Code {
	l := x.Library
	flags := l.Flags(e)
	c := Code{
		System: l.Systems.List[l.SystemOf(e)].URL, Code: string(l.Code(e)),
		Abstract: flags&codesystem.FlagAbstract != 0, Inactive: flags&codesystem.FlagInactive != 0,
	}
	if x.isVersioned(e) {
		c.Version = l.Systems.CodeSystems[e.CodeSystem].Version
	}
	if x.hasOneText(e) {
		c.Display = string(l.Display(e))
	} else if texts := x.texts(nil, e); x.languages.Preferred(texts) >= 0 {
		c.Display = string(texts[x.languages.Preferred(texts)].Value)
	}
	return c
}

// isVersioned reports whether an entry is shown with its version.
func (x *Expansion) isVersioned(e definitions.Entry) bool { return x.List.Versioned && e.IsKnown() }

// hasOneText reports whether there is only one display to choose from.
func (x *Expansion) hasOneText(e definitions.Entry) bool {
	return !x.detailed || e.Listed == 0 && e.IsKnown() && !x.languages.Only && len(x.List.Supplements) == 0 &&
		x.Library.Flags(e)&codesystem.FlagDesignated == 0
}

// texts appends the displays and designations of an entry.
func (x *Expansion) texts(dst []codesystem.Text, e definitions.Entry) []codesystem.Text {
	return x.Library.ShownTexts(dst, x.Library.Locate(e), x.valueSet.Language, x.List.Supplements)
}

// Parameter is one of ValueSet.expansion.parameter.
type Parameter struct {
	// Name is the name, and Value the value of whatever type, as text.
	Name, Value string
}

// Parameters returns expansion.parameter: what was asked for, the definitions used, and warnings about them.
func (x *Expansion) Parameters() []Parameter {
	var written []byte
	x.Library.Use(func() { written = NewWriter(x, false).echo })
	_, array, _ := bytes.Cut(written, []byte{':'})
	r, list := fhirjson.ReaderOf(array), []Parameter{}
	_ = r.Array(func() error { // no error: this was written above
		var in parameters.Input
		err := r.Object(func(name []byte) error { return in.Member(r, name, 0) })
		list = append(list, Parameter{Name: in.Name, Value: in.Value})
		return err
	})
	return list
}

// AppendJSON appends the ValueSet with the expansion, as $expand answers a POST.
func (x *Expansion) AppendJSON(dst []byte) []byte {
	x.Library.Use(func() { dst = NewWriter(x, false).Append(dst) })
	return dst
}

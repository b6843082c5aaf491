package expansion

import (
	"iter"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
)

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
	detailed  bool   // an entry may need more than code and display
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
	return !x.detailed || e.Own() == 0 && e.IsKnown() && !x.languages.Only && len(x.List.Supplements) == 0 &&
		x.Library.Flags(e)&codesystem.FlagDesignated == 0
}

// texts appends the displays and designations of an entry.
func (x *Expansion) texts(dst []codesystem.Text, e definitions.Entry) []codesystem.Text {
	return x.Library.ShownTexts(dst, x.Library.Locate(e), x.valueSet.Language, x.List.Supplements)
}

package terminology

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Query holds the parameters of ValueSet/$expand, those of R4, of R5 and of the HL7 terminology ecosystem, for
// [Library.Expand]. A zero field is a parameter that is not given.
type Query struct {
	ValueSetRef
	Page
	Rules

	// Language says in which language displays are wanted.
	Language Language

	// IncludeDesignations says whether designations are written, and IncludeDefinition whether the whole value set is.
	IncludeDesignations, IncludeDefinition Choice

	// ExcludeNested says whether codes are written as a list, and not within each other.
	ExcludeNested Choice

	// ExcludePostCoordinated is repeated in the answer, and has no other effect: there are no such codes here.
	ExcludePostCoordinated Choice

	// Designations are the designations that are wanted, by use or as urn:ietf:bcp:47|de.
	Designations []string

	// Properties are the codes of the properties that are wanted; * is all of them.
	Properties []string

	// Limits bounds what is asked for.
	Limits Limits

	subset subset // what of the answer is written
}

// ValueSetRef names a value set: by id, as a resource, by url, or by context. The first that is not empty counts.
type ValueSetRef struct {
	// ID is the id of the resource, of an operation on an instance. A URL beside it must be that resource's.
	ID string

	// ValueSet is the value set itself, in JSON.
	ValueSet jsontext.Value

	// URL is the canonical, url or url|version.
	URL string

	// Version is the version, where URL has none.
	Version string

	// Context is an element of a profile, as url#path: its binding names the value set.
	Context string
}

// Page says which part of an expansion is wanted.
type Page struct {
	// Filter is the parameter filter; empty for all.
	Filter string

	// Offset and Count are the parameters of these names; nil where they were not given.
	Offset, Count *int
}

// check checks the parameters against the limits, and makes a filter of spaces empty.
func (q *Query) check() error {
	if strings.TrimSpace(q.Filter) == "" {
		q.Filter = ""
	}
	for _, n := range []*int{q.Offset, q.Count} {
		if n != nil && (*n < 0 || *n > maxInt32) {
			return badRequest("invalid", "the parameters offset and count must be whole numbers from 0 up to %d", maxInt32)
		}
	}
	return q.Limits.check(q.Filter)
}

// paged reports whether only a part of the expansion was asked for.
func (p *Page) paged() bool { return p.Offset != nil || p.Count != nil }

// window returns the range of the page in a list of n entries.
func (p *Page) window(n int) (from, to int) {
	to = n
	if p.Offset != nil {
		from = min(*p.Offset, n)
	}
	if p.Count != nil {
		to = min(from+*p.Count, n)
	}
	return from, to
}

// Language says in which language displays are wanted.
type Language struct {
	// Display is the parameter displayLanguage: a list of languages, which may have weights.
	Display string

	// Accept is the header Accept-Language. It counts after what the value set itself says.
	Accept string
}

// preferred returns the languages for displays of a value set: from the parameter, else the value set's own parameter,
// else the header, else the language of the value set.
func (l *Language) preferred(vs *valueSet) string {
	return cmp.Or(l.Display, vs.standard("displayLanguage"), l.Accept, vs.language)
}

// Limits bounds what one operation may return. Zero means the default.
type Limits struct {
	// Entries is how many codes or matches one answer may hold. A query that would get more, having asked for no
	// page or too large a one, is too costly. Default: 10,000.
	Entries int

	// FilterLength is how long the parameter filter may be, in bytes. Default: 1000.
	FilterLength int

	// FilterWords is how many words the parameter filter may have. Default: 20.
	FilterWords int
}

// entries returns how many codes an answer may hold.
func (l *Limits) entries() int { return cmp.Or(l.Entries, defaultMaxEntries) }

// check checks the parameter filter.
func (l *Limits) check(filter string) error {
	if limit := cmp.Or(l.FilterLength, defaultMaxFilterLength); len(filter) > limit {
		return badRequest("too-long", "the filter may be at most %d bytes long", limit)
	}
	limit := cmp.Or(l.FilterWords, defaultMaxFilterWords)
	if len(filter) >= 2*limit && len(strings.Fields(filter)) > limit {
		return badRequest("too-long", "the filter may have at most %d words", limit)
	}
	return nil
}

// adopt takes over the parameters that a value set has for its own expansion, where the query has none.
func (q *Query) adopt(own []input) error {
	if len(own) == 0 {
		return nil
	}
	p := parameters{Query: *q}
	for i := range own {
		if in := &own[i]; in.name != "displayLanguage" && !q.gives(in.name) { // displayLanguage: see Language.of
			if _, err := p.set(in); err != nil {
				return err
			}
		}
	}
	*q = p.Query
	return nil
}

// gives reports whether the query has a parameter. That of a request counts even if it is blank.
func (q *Query) gives(name string) bool {
	if q.sent(name) {
		return true
	}
	if list := q.list(name); list != nil {
		return *list != nil
	}
	if c := q.choice(name); c != nil {
		return *c != Unset
	}
	switch name {
	case "filter":
		return q.Filter != ""
	case "date":
		return q.Date != ""
	case "offset":
		return q.Offset != nil
	case "count":
		return q.Count != nil
	}
	return false
}

// list returns the field of a parameter that may occur more than once, or nil.
func (q *Query) list(name string) *[]string {
	switch name {
	case "designation":
		return &q.Designations
	case "property":
		return &q.Properties
	case "useSupplement":
		return &q.Supplements
	}
	return q.Versions.list(name)
}

// choice returns the field of a parameter that is a boolean, or nil.
func (q *Query) choice(name string) *Choice {
	switch name {
	case "includeDesignations":
		return &q.IncludeDesignations
	case "includeDefinition":
		return &q.IncludeDefinition
	case "activeOnly":
		return &q.ActiveOnly
	case "excludeNested":
		return &q.ExcludeNested
	case "excludeNotForUI":
		return &q.ExcludeNotForUI
	case "excludePostCoordinated":
		return &q.ExcludePostCoordinated
	case "versionsMatch":
		return &q.Versions.Match
	}
	return nil
}

// wantsDesignations reports whether designations were asked for at all.
func (q *Query) wantsDesignations() bool {
	return q.IncludeDesignations == Yes || q.IncludeDesignations == Unset && len(q.Designations) > 0
}

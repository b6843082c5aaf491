package terminology

import (
	"cmp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Query holds the parameters of ValueSet/$expand for [Library.Expand]: those of R4, R5 and the HL7 terminology
// ecosystem. A zero field means that the parameter is not given.
type Query struct {
	ValueSetRef
	Page
	Rules

	// Language says which languages displays should be in.
	Language Language

	// IncludeDesignations says whether to write designations, IncludeDefinition whether to write the whole value set.
	IncludeDesignations, IncludeDefinition Choice

	// ExcludeNested says whether to write codes as a list rather than nested.
	ExcludeNested Choice

	// ExcludePostCoordinated is repeated in the answer and has no other effect: there are no such codes here.
	ExcludePostCoordinated Choice

	// Designations are the designations wanted, by use or as urn:ietf:bcp:47|de.
	Designations []string

	// Properties are the codes of the properties wanted; * is all of them.
	Properties []string

	// Limits bounds what may be asked for.
	Limits Limits

	subset subset // the part of the answer to write
}

// ValueSetRef names a value set by id, as a resource, by url or by context. The first that is not empty counts.
type ValueSetRef struct {
	// ID is the id of the resource, for an operation on an instance. A URL beside it must be that resource's.
	ID string

	// ValueSet is the value set itself, in JSON.
	ValueSet jsontext.Value

	// URL is the canonical, url or url|version.
	URL string

	// Version is the version, if URL has none.
	Version string

	// Context is an element of a profile, as url#path, whose binding names the value set.
	Context string
}

// Page says which part of an expansion is wanted.
type Page struct {
	// Filter is the parameter filter; empty for all.
	Filter string

	// Offset and Count are the parameters of these names; nil if not given.
	Offset, Count *int

	// ExplainFilter says whether to tell of each entry that the filter finds why it is where it is; see [Explanation].
	ExplainFilter Choice
}

// check checks the parameters against the limits. A filter of spaces becomes empty.
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

// paged reports whether only part of the expansion is wanted.
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

// Language says which languages displays should be in.
type Language struct {
	// Display is the parameter displayLanguage: a list of languages, possibly with weights.
	Display string

	// Accept is the header Accept-Language. It counts after the value set's own parameter.
	Accept string
}

// preferred returns the languages for the displays of a value set: the parameter's, the value set's own parameter's,
// the header's or the value set's, in this order.
func (l *Language) preferred(vs *valueSet) string {
	return cmp.Or(l.Display, vs.standard("displayLanguage"), l.Accept, vs.language)
}

// Limits bounds what one operation may return. Zero means the default.
type Limits struct {
	// Entries is how many codes or matches an answer may hold. A query that would return more, without a page or with
	// too large a one, is too costly. Default: 10,000.
	Entries int

	// FilterLength is how long the parameter filter may be, in bytes. Default: 1000.
	FilterLength int

	// FilterWords is how many words the parameter filter may have. Default: 20.
	FilterWords int
}

func (l *Limits) entries() int { return cmp.Or(l.Entries, defaultMaxEntries) }

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

// adopt takes the parameters that a value set sets for its own expansion, where the query has none.
func (q *Query) adopt(own []input) error {
	if len(own) == 0 {
		return nil
	}
	adopted := *q
	for i := range own {
		if in := &own[i]; in.name != "displayLanguage" && !q.gives(in.name) { // displayLanguage: see Language.preferred
			if _, err := adopted.set(in); err != nil {
				return err
			}
		}
	}
	*q = adopted
	return nil
}

// gives reports whether the query has a parameter; one sent in a request counts even if it is blank.
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

// list returns the field of a repeatable parameter, or nil.
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

// choice returns the field of a boolean parameter, or nil.
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
	case "explainFilter":
		return &q.ExplainFilter
	case "versionsMatch":
		return &q.Versions.Match
	}
	return nil
}

func (q *Query) wantsDesignations() bool {
	return q.IncludeDesignations == Yes || q.IncludeDesignations == Unset && len(q.Designations) > 0
}

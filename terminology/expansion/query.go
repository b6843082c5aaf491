package expansion

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

type (
	// ValueSetRef says which value set is meant.
	ValueSetRef = compose.ValueSetRef

	// Rules say which versions are used, and what is left out.
	Rules = compose.Rules
)

// Query holds the parameters of ValueSet/$expand for [Library.Expand]: those of R4, R5 and the HL7 terminology
// ecosystem. A zero field means that the parameter is not given.
type Query struct {
	ValueSetRef
	Page
	Rules

	// Language says which languages displays should be in.
	Language definitions.Language

	// IncludeDesignations says whether to write designations, IncludeDefinition whether to write the whole value set.
	IncludeDesignations, IncludeDefinition parameters.Choice

	// ExcludeNested says whether to write codes as a list rather than nested.
	ExcludeNested parameters.Choice

	// ExcludePostCoordinated is repeated in the answer and has no other effect: there are no such codes here.
	ExcludePostCoordinated parameters.Choice

	// Designations are the designations wanted, by use or as urn:ietf:bcp:47|de.
	Designations []string

	// Properties are the codes of the properties wanted; * is all of them.
	Properties []string

	// Limits bounds what may be asked for.
	Limits Limits

	subset Subset // the part of the answer to write
}

// Page says which part of an expansion is wanted.
type Page struct {
	// Filter is the parameter filter; empty for all.
	Filter string

	// Offset and Count are the parameters of these names; nil if not given.
	Offset, Count *int
}

// Check checks the parameters against the limits. A filter of spaces becomes empty.
func (q *Query) Check() error {
	if strings.TrimSpace(q.Filter) == "" {
		q.Filter = ""
	}
	for _, n := range []*int{q.Offset, q.Count} {
		if n != nil && (*n < 0 || *n > maxInt32) {
			return outcome.BadRequest("invalid", "the parameters offset and count must be whole numbers from 0 up to %d", maxInt32)
		}
	}
	return checkFilter(q.Filter)
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
		to = from + min(*p.Count, n-from)
	}
	return from, to
}

// Limits bounds what one operation may return. Zero means the default.
type Limits struct {
	// Entries is how many codes or matches an answer may hold. A query that would return more, without a page or with
	// too large a one, is too costly. Default: 10,000.
	Entries int
}

// Most returns Entries, or its default.
func (l *Limits) Most() int { return cmp.Or(l.Entries, defaultMaxEntries) }

func checkFilter(filter string) error {
	if len(filter) > maxFilterLength {
		return outcome.BadRequest("too-long", "the filter may be at most %d bytes long", maxFilterLength)
	}
	if len(filter) >= 2*maxFilterWords && len(strings.Fields(filter)) > maxFilterWords {
		return outcome.BadRequest("too-long", "the filter may have at most %d words", maxFilterWords)
	}
	return nil
}

// List returns the field of a repeatable parameter, or nil.
func (q *Query) List(name string) *[]string {
	switch name {
	case "designation":
		return &q.Designations
	case "property":
		return &q.Properties
	case "useSupplement":
		return &q.Supplements
	}
	return q.Versions.List(name)
}

// choice returns the field of a boolean parameter, or nil.
func (q *Query) choice(name string) *parameters.Choice {
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

func (q *Query) wantsDesignations() bool {
	return q.IncludeDesignations == parameters.Yes || q.IncludeDesignations == parameters.Unset && len(q.Designations) > 0
}

const (
	defaultMaxEntries = 10_000
	maxFilterLength   = 1000 // bytes
	maxFilterWords    = 20
)

// tooCostly is the error for too large an answer.
func tooCostly(vs *definitions.ValueSet, limit int) error {
	return outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); ask for a part, with offset and count", vs.Canonical(), limit))
}

// maxInt32 is more than there can be entries.
const maxInt32 = 1<<31 - 1

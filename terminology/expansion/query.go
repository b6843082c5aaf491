package expansion

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/compose"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

type (
	// ValueSetRef specifies the value set.
	ValueSetRef = compose.ValueSetRef

	// Rules select versions of definitions and exclude codes.
	Rules = compose.Rules
)

// Query contains the parameters of ValueSet/$expand, for [New]: those of R4, R5 and the HL7 terminology ecosystem. Zero
// values mean absent parameters.
type Query struct {
	ValueSetRef
	Page
	Rules

	// Language specifies the languages of displays.
	Language definitions.Language

	// IncludeDesignations adds designations to entries; IncludeDefinition adds the definition of the value set.
	IncludeDesignations, IncludeDefinition parameters.Choice

	// ExcludeNested requests a list of codes instead of a tree.
	ExcludeNested parameters.Choice

	// ExcludePostCoordinated only has an effect on expansion.parameter, because postcoordinated codes are not supported.
	ExcludePostCoordinated parameters.Choice

	// Designations are the requested designations, specified by use or by language, such as urn:ietf:bcp:47|de.
	Designations []string

	// Properties are the codes of the requested properties. * requests all properties.
	Properties []string

	// Limits limits the number of codes in the response.
	Limits Limits

	subset Subset // part of the response to write (_summary, _elements)
}

// Page selects a part of an expansion.
type Page struct {
	// Filter is the text filter. An empty filter matches all codes.
	Filter string

	// Offset is the index of the first entry, and Count the maximum number of entries. nil means absent.
	Offset, Count *int
}

// Check returns an error if the filter, offset or count is invalid. It replaces a blank filter with an empty one.
func (q *Query) Check() error {
	if strings.TrimSpace(q.Filter) == "" {
		q.Filter = ""
	}
	for _, n := range []*int{q.Offset, q.Count} {
		if n != nil && (*n < 0 || *n > maxInt32) {
			return outcome.BadRequest("invalid", "the parameters offset and count must be integers from 0 to %d", maxInt32)
		}
	}
	return checkFilter(q.Filter)
}

// isPaged reports whether only a part of the expansion is requested.
func (p *Page) isPaged() bool { return p.Offset != nil || p.Count != nil }

// window returns the range [from, to) of the page in a list of n entries.
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

// Limits contains the maximum sizes of results. Zero values mean defaults.
type Limits struct {
	// Entries is the maximum number of codes in a response. A request is rejected as too costly if its page, or without paging
	// its entire result, is larger. Default: 10,000.
	Entries int
}

// MaxEntries returns Entries or its default.
func (l *Limits) MaxEntries() int { return cmp.Or(l.Entries, defaultMaxEntries) }

func checkFilter(filter string) error {
	if len(filter) > maxFilterLength {
		return outcome.BadRequest("too-long", "the filter is longer than %d bytes", maxFilterLength)
	}
	if len(filter) >= 2*maxFilterWords && len(strings.Fields(filter)) > maxFilterWords {
		return outcome.BadRequest("too-long", "the filter has more than %d words", maxFilterWords)
	}
	return nil
}

// ListField returns the field for a repeatable parameter, or nil for any other parameter.
func (q *Query) ListField(name string) *[]string {
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

// choiceField returns the field for a boolean parameter, or nil for any other parameter.
func (q *Query) choiceField(name string) *parameters.Choice {
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

func (q *Query) includesDesignations() bool {
	return q.IncludeDesignations == parameters.Yes || q.IncludeDesignations == parameters.Unset && len(q.Designations) > 0
}

const (
	defaultMaxEntries = 10_000
	maxFilterLength   = 1000 // in bytes
	maxFilterWords    = 20
)

// newTooCostlyError returns the error for a result of more than limit codes.
func newTooCostlyError(vs *definitions.ValueSet, limit int) error {
	return outcome.New(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); request a part with offset and count", vs.Canonical(), limit))
}

// maxInt32 is the maximum of offset and count; it exceeds any number of entries.
const maxInt32 = 1<<31 - 1

// Set reads a parameter into its field and reports whether the parameter is known.
func (q *Query) Set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "url":
		q.URL = in.Value
	case "valueSet":
		q.ValueSet = in.Resource
		if in.Resource == nil {
			return true, outcome.BadRequest("invalid", "the parameter valueSet must be a resource, which requires a POST")
		}
	case "valueSetVersion":
		q.Version = in.Value
	case "context":
		q.Context = in.Value
	case "contextDirection": // no effect, because a binding applies in both directions
		if in.Value != "incoming" && in.Value != "outgoing" {
			return true, outcome.BadRequest("invalid", "the parameter contextDirection must be incoming or outgoing")
		}
	case "filter":
		if strings.TrimSpace(in.Value) != "" { // a blank filter is treated as absent, because FHIR strings in expansion.parameter must not be empty
			q.Filter = in.Value
		}
	case "date":
		q.Date = in.Value
	case "offset":
		q.Offset, err = parameters.ParseNumber(in)
	case "count":
		q.Count, err = parameters.ParseNumber(in)
	case "displayLanguage":
		q.Language.Display, err = in.Value, checkLanguage(in.Value)
	default:
		return q.setOther(in)
	}
	return true, err
}

// setOther reads a repeatable or boolean parameter, _summary or _elements.
func (q *Query) setOther(in *parameters.Input) (known bool, err error) {
	if list := q.ListField(in.Name); list != nil {
		*list = append(*list, in.Value)
		return true, q.Versions.Check(in)
	}
	if c := q.choiceField(in.Name); c != nil {
		return true, c.Set(in)
	}
	return q.subset.Set(in)
}

func checkLanguage(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		tag, _, _ := strings.Cut(item, ";")
		tag = strings.TrimSpace(tag)
		letters := strings.IndexFunc(tag, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' || r == '*' })
		if tag != "" && letters != 0 {
			return outcome.New(http.StatusBadRequest, "processing", "invalid-display", "INVALID_DISPLAY_NAME", fmt.Sprintf("Invalid displayLanguage: '%s'", list))
		}
	}
	return nil
}

// ApplyDefaults sets parameters that the request lacks from own, the expansion parameters in the value set.
func (q *Query) ApplyDefaults(own []parameters.Input) error {
	if len(own) == 0 {
		return nil
	}
	defaults := *q
	for i := range own {
		if in := &own[i]; in.Name != "displayLanguage" && !q.hasParameter(in.Name) { // Language.Preferred handles displayLanguage
			if _, err := defaults.Set(in); err != nil {
				return err
			}
		}
	}
	*q = defaults
	return nil
}

// hasParameter reports whether a parameter is set, which includes blank parameters of a request.
func (q *Query) hasParameter(name string) bool {
	if q.HasParameter(name) {
		return true
	}
	if list := q.ListField(name); list != nil {
		return *list != nil
	}
	if c := q.choiceField(name); c != nil {
		return *c != parameters.Unset
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

// Subset is the part of a resource that _summary and _elements select (R4 RESTful search, Summary and Elements). The zero value
// selects the entire resource.
type Subset struct {
	Summary  string   // "true", "text", "data", "count", or "" if all elements are selected
	elements []string // names of the elements in _elements
}

// summaryElements are the elements of ValueSet and CodeSystem that belong to the summary in R4. The expansion does not.
var summaryElements = []string{
	"url", "identifier", "version", "name", "title", "status", "experimental", "date", "publisher", "contact", "useContext",
	"jurisdiction", "immutable", "caseSensitive", "valueSet", "hierarchyMeaning", "compositional", "versionNeeded", "content",
	"supplements", "count", "filter", "property",
}

// Set reads _summary or _elements. known is false for any other parameter.
func (s *Subset) Set(in *parameters.Input) (known bool, err error) {
	switch in.Name {
	case "_summary":
		switch in.Value {
		case "true", "text", "data", "count":
			s.Summary = in.Value
		case "false":
		default:
			return true, outcome.BadRequest("invalid", "the parameter _summary must be true, text, data, count or false")
		}
	case "_elements":
		for name := range strings.SplitSeq(in.Value, ",") {
			name, _, _ = strings.Cut(trimType(strings.TrimSpace(name)), ".")
			if name != "" {
				s.elements = append(s.elements, name)
			}
		}
	default:
		return false, nil
	}
	if s.Summary != "" && s.elements != nil {
		return true, outcome.BadRequest("invalid", "the parameters _summary and _elements must not be combined")
	}
	return true, nil
}

// trimType removes the resource type from a path such as ValueSet.url.
func trimType(path string) string {
	if kind, rest, ok := strings.Cut(path, "."); ok && definitions.IsResourceType(kind) {
		return rest
	}
	return path
}

func (s *Subset) isFull() bool { return s.Summary == "" && s.elements == nil }

// Has reports whether the subset includes a top-level element. Mandatory elements are always included.
func (s *Subset) Has(element string) bool {
	if s.isFull() || element == "id" || element == "status" || element == "content" {
		return true
	}
	switch s.Summary {
	case "data":
		return element != "text"
	case "count":
		return element == "expansion"
	case "true":
		return slices.Contains(summaryElements, element)
	}
	return slices.Contains(s.elements, element)
}

func (s *Subset) hasCodes() bool { return s.Summary != "count" && s.Has("expansion") }

func (s *Subset) appendMeta(dst []byte) []byte {
	if s.isFull() {
		return dst
	}
	return AppendSubsetted(dst)
}

// AppendSubsetted appends the element meta with the tag SUBSETTED, which marks an incomplete resource.
func AppendSubsetted(dst []byte) []byte {
	return append(dst, `,"meta":{"tag":[{"system":"http://terminology.hl7.org/CodeSystem/v3-ObservationValue","code":"SUBSETTED","display":"subsetted"}]}`...)
}

// appendTag appends the part of the entity tag that identifies the subset; nothing for the entire resource.
func (s *Subset) appendTag(dst []byte) []byte {
	if s.isFull() {
		return dst
	}
	sum := sha256.Sum256([]byte(s.Summary + "\x00" + strings.Join(s.elements, ",")))
	return hex.AppendEncode(append(dst, '-'), sum[:8])
}

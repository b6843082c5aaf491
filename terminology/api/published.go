package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// definitionResource is a definition of the library as a resource. It lacks members that the library drops: narrative,
// metadata, and extensions that no operation uses.
type definitionResource struct {
	kind string
	*definitions.Definition
	otherMembers []fhirjson.Member
	concepts     codesystem.List // concepts to write; nil if there are none
}

// Read serves [base]/CodeSystem/{id} and [base]/ValueSet/{id} from the definitions of the library (R4 RESTful API, read). It
// supports _summary and _elements. For responses and errors, see [Handler.Expand].
func (h *Handler) Read(w http.ResponseWriter, r *http.Request) error {
	_, part, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	kind, id := parseTypeAndID(r.URL.Path)
	l := h.currentLibrary().Definitions()
	p, ok := findDefinition(l, kind, id)
	if !ok {
		return outcome.NewUnknown("", "there is no "+kind+" with the id "+id)
	}
	var body []byte
	l.Use(func() { body = p.append(nil, part) })
	return f.write(w, r, body)
}

// findDefinition returns the definition of a type with an ID.
func findDefinition(d *definitions.Set, kind, id string) (p definitionResource, ok bool) {
	if kind == "ValueSet" {
		vs, ok := d.ValueSets.ValueSetByID(id)
		if !ok {
			return p, false
		}
		return newValueSetResource(vs), true
	}
	cs, ok := d.Systems.ByID(id)
	if !ok {
		return p, false
	}
	return newCodeSystemResource(cs), true
}

func newValueSetResource(vs *definitions.ValueSet) definitionResource {
	return definitionResource{kind: "ValueSet", Definition: &vs.Definition, otherMembers: vs.OtherMembers}
}

func newCodeSystemResource(cs *definitions.CodeSystem) definitionResource {
	return definitionResource{kind: "CodeSystem", Definition: &cs.Definition, otherMembers: cs.OtherMembers, concepts: cs.Concepts.List}
}

// listDefinitions returns all versions of all definitions of a type, in loading order.
func listDefinitions(d *definitions.Set, kind string) []definitionResource {
	var list []definitionResource
	if kind == "ValueSet" {
		for _, vs := range d.ValueSets.List {
			list = append(list, newValueSetResource(vs))
		}
		return list
	}
	for index, cs := range d.Systems.CodeSystems {
		if !d.Systems.IsContained(uint32(index)) {
			list = append(list, newCodeSystemResource(cs))
		}
	}
	return list
}

// append appends the resource, or the subset of it that part selects.
func (p *definitionResource) append(dst []byte, part *expansion.Subset) []byte {
	dst = append(append(append(dst, `{"resourceType":"`...), p.kind...), '"')
	dst = expansion.AppendSubsetted(dst) // always, because members may have been dropped
	dst = appendCommonElements(dst, p.Definition, part)
	for _, m := range p.otherMembers {
		if part.Has(m.Name) {
			dst = append(append(fhirjson.AppendString(append(dst, ','), m.Name), ':'), m.Value...)
		}
	}
	if p.concepts != nil && part.Has("concept") {
		dst = p.concepts.AppendConcepts(dst)
	}
	return append(dst, '}')
}

// appendCommonElements appends the elements that CodeSystem and ValueSet have in common.
func appendCommonElements(dst []byte, d *definitions.Definition, part *expansion.Subset) []byte {
	for _, m := range d.StringMembers() {
		if part.Has(m.Name) {
			dst = fhirjson.AppendMember(dst, m.Name, *m.Destination)
		}
	}
	if d.Experimental != nil && part.Has("experimental") {
		dst = strconv.AppendBool(append(dst, `,"experimental":`...), *d.Experimental)
	}
	return dst
}

// searchInputs returns the parameters of a read or search, the requested subset and the format.
func searchInputs(r *http.Request) (inputs []parameters.Input, part *expansion.Subset, f format, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, nil, f, &outcome.Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "read and search support only GET and HEAD"}
	}
	if inputs, err = parameters.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, nil, f, err
	}
	part = new(expansion.Subset)
	for i := range inputs {
		if _, err := part.Set(&inputs[i]); err != nil {
			return nil, nil, f, err
		}
	}
	f, err = negotiate(r, inputs)
	return inputs, part, f, err
}

// parseTypeAndID returns the resource type and optional ID in a path [base]/Type or [base]/Type/id.
func parseTypeAndID(path string) (kind, id string) {
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	if last := parts[len(parts)-1]; definitions.IsResourceType(last) || len(parts) < 2 {
		return last, ""
	}
	return parts[len(parts)-2], parts[len(parts)-1]
}

// Search serves [base]/CodeSystem and [base]/ValueSet. It returns the definitions that match all of the parameters url,
// version, identifier, name, title, status and _id (R4 RESTful search). It ignores unknown parameters and omits them from the
// self link, but rejects them with Prefer: handling=strict. A page has _count definitions, by default 20 and at most
// [expansion.Limits.Entries]. For responses and errors, see [Handler.Expand].
func (h *Handler) Search(w http.ResponseWriter, r *http.Request) error {
	inputs, part, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	c := h.newCall(r)
	defer c.Budget.ReleaseSlot()
	s := resourceSearch{limit: h.Limits.MaxEntries(), count: 20, budget: &c.Budget, usedParameters: url.Values{}, strict: isStrict(r.Header)}
	for i := range inputs {
		if err := s.readParameter(&inputs[i]); err != nil {
			return err
		}
	}
	kind, _ := parseTypeAndID(r.URL.Path)
	var found []definitionResource
	for _, p := range listDefinitions(c.library.Definitions(), kind) {
		if err := c.Budget.Charge(1 + s.cost); err != nil {
			return err
		}
		if !slices.ContainsFunc(s.tests, func(test func(p *definitionResource) bool) bool { return !test(&p) }) {
			found = append(found, p)
		}
	}
	var bundle []byte
	if c.library.Definitions().Use(func() { bundle, err = s.newBundle(found, part, requestURL(r)) }); err != nil {
		return err
	}
	if f == (format{}) {
		c.Budget.ReleaseSlot()
	}
	return f.write(w, r, bundle)
}

func requestURL(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return (&url.URL{Scheme: scheme, Host: r.Host, Path: r.URL.Path}).String()
}

type resourceSearch struct {
	tests          []func(p *definitionResource) bool
	cost           int // budget steps that the tests take per definition
	budget         *budget.Budget
	usedParameters url.Values
	limit          int
	count, offset  int
	strict         bool // unknown parameters are rejected
}

// isStrict reports whether the client wants unknown parameters to be rejected: Prefer: handling=strict (RFC 7240 §4.4).
func isStrict(header http.Header) bool {
	for preference := range strings.SplitSeq(strings.Join(header["Prefer"], ","), ",") {
		name, value, _ := strings.Cut(preference, "=")
		if strings.EqualFold(strings.TrimSpace(name), "handling") {
			value, _, _ = strings.Cut(value, ";")
			return strings.EqualFold(strings.Trim(value, ` "`), "strict")
		}
	}
	return false
}

// searchParameters maps each search parameter to the text of a definition that it is compared with.
var searchParameters = map[string]func(p *definitionResource) string{
	"url":     func(p *definitionResource) string { return p.URL },
	"version": func(p *definitionResource) string { return p.Version },
	"name":    func(p *definitionResource) string { return p.Name },
	"title":   func(p *definitionResource) string { return p.Title },
	"status":  func(p *definitionResource) string { return p.Status },
	"_id":     func(p *definitionResource) string { return p.ID },
}

// readParameter applies a parameter to the search.
func (s *resourceSearch) readParameter(in *parameters.Input) error {
	name, modifier, _ := strings.Cut(in.Name, ":")
	of, known := searchParameters[name]
	switch {
	case name == "_count" || name == "_offset":
		n, err := parameters.ParseNumber(in)
		if err != nil {
			return err
		}
		if name == "_offset" {
			s.offset = *n
		} else {
			s.count = min(*n, s.limit)
		}
	case known:
		return s.addTextTest(in, of, name, modifier)
	case in.Name == "identifier":
		return s.addIdentifierTest(in)
	case slices.Contains([]string{"_summary", "_elements", "_format", "_pretty"}, name):
	case s.strict || name == "identifier": // identifier with a modifier, or unknown
		return outcome.BadRequest("not-supported", "the search parameter %s is not supported", in.Name)
	default:
		return nil
	}
	s.usedParameters.Add(in.Name, in.Value)
	return nil
}

// addTextTest adds a test that compares a text of each definition with the comma-separated values of a parameter.
func (s *resourceSearch) addTextTest(in *parameters.Input, of func(*definitionResource) string, name, modifier string) error {
	prepare, compare, err := newComparison(name, modifier)
	if err != nil {
		return err
	}
	requested := strings.Split(in.Value, ",")
	if err := s.budget.Charge(4*len(requested) + len(in.Value)/budget.ReadBytesPerStep); err != nil {
		return err
	}
	for i := range requested {
		requested[i] = prepare(requested[i])
	}
	s.cost += 4 + len(requested)/2 + len(in.Value)/budget.PlainBytesPerStep
	s.tests = append(s.tests, func(p *definitionResource) bool {
		has := prepare(of(p))
		return slices.ContainsFunc(requested, func(value string) bool { return compare(has, value) })
	})
	s.usedParameters.Add(in.Name, in.Value)
	return nil
}

// addIdentifierTest adds a test for the identifier parameter, a list of comma-separated tokens (R4 §3.1.1.4.10).
func (s *resourceSearch) addIdentifierTest(in *parameters.Input) error {
	requested := strings.Split(in.Value, ",")
	if err := s.budget.Charge(len(requested) + len(in.Value)/budget.ReadBytesPerStep); err != nil {
		return err
	}
	s.cost += 20 + 4*len(requested)
	s.tests = append(s.tests, func(p *definitionResource) bool {
		return slices.ContainsFunc(p.identifiers(), func(has identifier) bool { return slices.ContainsFunc(requested, has.matches) })
	})
	s.usedParameters.Add(in.Name, in.Value)
	return nil
}

// identifier is an entry of a definition's identifier element.
type identifier struct{ System, Value string }

// matches reports whether a token matches the identifier: value, system|value, |value or system|.
func (i identifier) matches(token string) bool {
	system, value, hasSystem := strings.Cut(token, "|")
	if !hasSystem {
		return token != "" && i.Value == token
	}
	return token != "|" && i.System == system && (value == "" || i.Value == value)
}

// identifiers returns the element identifier of a CodeSystem or ValueSet.
func (p *definitionResource) identifiers() (list []identifier) {
	for _, m := range p.otherMembers {
		if m.Name == "identifier" {
			_ = json.Unmarshal(m.Value, &list, json.MatchCaseInsensitiveNames(true)) // a malformed member is treated as an empty list
		}
	}
	return list
}

// newComparison returns two functions for a search parameter with a modifier. prepare normalizes both the definition's value
// and the requested value; compare compares the results.
func newComparison(name, modifier string) (prepare func(string) string, compare func(has, requested string) bool, err error) {
	isString := name == "name" || name == "title"
	same := func(has, requested string) bool { return has == requested }
	switch {
	case isString && modifier == "":
		return textindex.Fold, strings.HasPrefix, nil
	case isString && modifier == "contains":
		return textindex.Fold, strings.Contains, nil
	case name == "status" && modifier == "":
		return tokenCode, same, nil
	case modifier == "" || isString && modifier == "exact":
		return func(s string) string { return s }, same, nil
	}
	return nil, nil, outcome.BadRequest("not-supported", "the modifier :%s of the parameter %s is not supported", modifier, name)
}

// tokenCode returns the code of a token, which is either code or system|code.
func tokenCode(token string) string {
	if _, code, ok := strings.Cut(token, "|"); ok {
		return code
	}
	return token
}

func (s *resourceSearch) newBundle(found []definitionResource, part *expansion.Subset, address string) ([]byte, error) {
	dst := []byte(`{"resourceType":"Bundle","type":"searchset","total":`)
	dst = strconv.AppendInt(dst, int64(len(found)), 10)
	links := fhirjson.Array{Name: "link"}
	dst = s.appendLink(links.Next(dst), "self", address, s.offset)
	from := min(s.offset, len(found))
	to := min(from+s.count, len(found))
	if part.Summary == "count" {
		to = from
	} else if to < len(found) && s.count > 0 {
		dst = s.appendLink(links.Next(dst), "next", address, to)
	}
	dst = links.End(dst)
	entries := fhirjson.Array{Name: "entry"}
	for i := range found[from:to] {
		p, before := &found[from+i], len(dst)
		dst = append(entries.Next(dst), '{')
		if p.ID != "" {
			dst = append(fhirjson.AppendString(append(dst, `"fullUrl":`...), address+"/"+p.ID), ',')
		}
		dst = append(p.append(append(dst, `"resource":`...), part), `,"search":{"mode":"match"}}`...)
		if err := s.budget.ChargeRead(len(dst) - before); err != nil {
			return nil, err
		}
		if len(dst) > outcome.MaxResponseSize {
			return nil, outcome.NewTooLong()
		}
	}
	return append(entries.End(dst), '}'), nil
}

// appendLink appends a Bundle.link to a page of the search.
func (s *resourceSearch) appendLink(dst []byte, relation, address string, offset int) []byte {
	query := url.Values{}
	maps.Copy(query, s.usedParameters)
	if query.Del("_offset"); offset > 0 {
		query.Set("_offset", strconv.Itoa(offset))
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	dst = append(dst, fmt.Sprintf(`{"relation":%q,"url":`, relation)...)
	return append(fhirjson.AppendString(dst, address), '}')
}

package sample

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// search handles a search in a type, a compartment or the system.
func search(s *Store, q request) (reply, error) {
	parsed, err := readQuery(q)
	if err != nil {
		return reply{}, err
	}
	b := bundle{Type: "searchset", path: strings.TrimSuffix(q.Path(), "/")}
	if b.entries, err = s.findMatches(q, parsed); err != nil {
		return reply{}, err
	}
	b.includedEntries = func(page []entry) ([]entry, error) { return s.findIncluded(q, parsed.includes, page) }
	return b.buildPage(q, parsed.supported)
}

// findMatches returns the resources that match a search, in order.
func (s *Store) findMatches(q request, parsed query) (found []entry, err error) {
	err = s.forEachResource(q, parsed.types, func(v *version) error {
		if q.Kind == interaction.CompartmentSearch && !IsInCompartment(v.Resource, q.Compartment) {
			return nil
		}
		for _, c := range parsed.criteria {
			if ok, err := c.matches(v.Resource); !ok || err != nil {
				return err
			}
		}
		found = append(found, entry{v, "match"})
		return nil
	})
	sortEntries(found, parsed.sort)
	return found, err
}

// IsInCompartment reports whether a resource is in a compartment.
func IsInCompartment(r resource.Resource, of interaction.Reference) bool {
	if of.Type == "Patient" {
		return compartment.IsInPatient(r, of.ID)
	}
	m, _ := compartment.LookUp(of.Type, r.Type)
	return m.OwnsCompartment && r.Type == of.Type && r.ID == of.ID || slices.ContainsFunc(m.Params, func(name string) bool {
		p, _ := searchparam.Lookup(r.Type, name)
		return slices.Contains(References(r, p), of)
	})
}

// sortEntries sorts entries by the keys of _sort. Resources that have no value come last.
func sortEntries(found []entry, keys []string) {
	slices.SortStableFunc(found, func(a, b entry) int {
		for _, key := range keys {
			name, descending := strings.CutPrefix(key, "-")
			if c := Compare(a.Resource, b.Resource, name, descending); c != 0 {
				return c
			}
		}
		return 0
	})
}

// Compare orders two resources by a search parameter. A resource that has no value comes last.
func Compare(a, b resource.Resource, name string, descending bool) int {
	pa, _ := searchparam.Lookup(a.Type, name)
	pb, _ := searchparam.Lookup(b.Type, name)
	x, y := pa.Rank(a, descending), pb.Rank(b, descending)
	switch {
	case x.HasValue && y.HasValue && descending:
		return y.Compare(x)
	case x.HasValue && y.HasValue:
		return x.Compare(y)
	case x.HasValue:
		return -1
	case y.HasValue:
		return 1
	}
	return 0
}

// handleEverything handles Patient/$everything: the patient's compartment, and the resources that it references.
func handleEverything(s *Store, q request) (reply, error) {
	if err := q.checkParameters("_count", "_type"); err != nil {
		return reply{}, err
	}
	if _, err := s.find(q.reference(), ""); err != nil {
		return reply{}, err
	}
	of := q
	of.Interaction = interaction.Interaction{
		Kind: interaction.CompartmentSearch, Compartment: q.reference(), Parameters: q.Parameters,
	}
	parsed, err := readQuery(of)
	if err != nil {
		return reply{}, err
	}
	b := bundle{Type: "searchset", path: q.Path()}
	if b.entries, err = s.findMatches(of, parsed); err != nil {
		return reply{}, err
	}
	b.entries = append(b.entries, s.findReferenced(b.entries, parsed.types)...)
	return b.buildPage(q, q.Parameters)
}

// findReferenced returns the resources of the given types that entries reference, except patients.
func (s *Store) findReferenced(entries []entry, types []string) (found []entry) {
	seen := map[interaction.Reference]bool{}
	for _, e := range entries {
		seen[e.reference] = true
	}
	parameters := map[string][]searchparam.Parameter{}
	for _, e := range entries {
		if parameters[e.Type] == nil {
			parameters[e.Type] = searchparam.Parameters(e.Type)
		}
		for _, p := range parameters[e.Type] {
			if p.Kind != searchparam.Reference {
				continue
			}
			for _, to := range References(e.Resource, p) {
				v, ok := s.current(to)
				if !ok || seen[to] || to.Type == "Patient" || !slices.Contains(types, to.Type) {
					continue
				}
				seen[to] = true
				found = append(found, entry{v, "include"})
			}
		}
	}
	return found
}

// query is a parsed search.
type query struct {
	types     []string // types of the resources that may be found
	criteria  []criterion
	sort      []string
	includes  []include
	supported []smart.Parameter // supported parameters, repeated in the self link
}

// criterion is a search parameter that matches must satisfy.
type criterion struct{ name, modifier, value string }

// readQuery parses search parameters. An unsupported parameter is an error unless the client requests lenient handling (R4
// search.html#errors).
func readQuery(q request) (query, error) {
	s := query{types: []string{q.Type}}
	if q.Type == "" || q.Type == smart.AnyType {
		s.types = interaction.Types()
		if types := parameterValue(q.Parameters, "_type"); types != "" {
			s.types = strings.Split(types, ",")
		}
	}
	for _, t := range s.types {
		if !interaction.IsType(t) {
			return query{}, newInvalid("_type contains an unknown resource type.")
		}
	}
	lenient := strings.Contains(q.header.Get("Prefer"), "handling=lenient")
	for _, p := range q.Parameters {
		switch err := s.readParameter(p, q.base); {
		case err == nil:
			s.supported = append(s.supported, p)
		case !lenient:
			return query{}, err
		}
	}
	return s, nil
}

// readParameter parses one parameter. base is the URL of the server's FHIR API.
func (s *query) readParameter(p smart.Parameter, base string) error {
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case controlsResponse(name), name == "_count", name == "_total", name == "_type":
		return nil
	case name == "_summary":
		return readSummary(p.Value)
	case name == "_sort":
		return s.readSort(p.Value)
	case name == "_include", name == "_revinclude":
		in, err := readInclude(name, modifier, p.Value)
		if err == nil {
			s.includes = append(s.includes, in)
		}
		return err
	}
	return s.readCriterion(criterion{name, modifier, p.Value}, base)
}

func readSummary(value string) error {
	if !slices.Contains([]string{"true", "false", "text", "data", "count"}, value) {
		return newInvalid("Invalid _summary: use true, false, text, data or count.")
	}
	return nil
}

// readSort parses the keys of _sort.
func (s *query) readSort(keys string) error {
	for key := range strings.SplitSeq(keys, ",") {
		name := strings.TrimPrefix(key, "-")
		if !s.hasType(func(t string) bool { p, ok := searchparam.Lookup(t, name); return ok && p.CanSort() }) {
			return newUnsupported("Sorting by " + name + " is not supported.")
		}
	}
	s.sort = strings.Split(keys, ",")
	return nil
}

// hasType reports whether is returns true for any of the types.
func (s *query) hasType(is func(resourceType string) bool) bool {
	return slices.ContainsFunc(s.types, is)
}

// readCriterion validates a criterion by matching it against an empty resource. It converts absolute references to resources of
// this server to relative references.
func (s *query) readCriterion(c criterion, base string) error {
	var problem error
	isKnown := s.hasType(func(t string) bool {
		p, ok := searchparam.Lookup(t, c.name)
		if !ok || len(p.Paths) == 0 {
			return false
		}
		if p.Kind == searchparam.Reference {
			c.value = strings.TrimPrefix(c.value, base+"/")
		}
		if _, err := c.matches(resource.Resource{Type: t}); err != nil {
			problem = newInvalid("The parameter " + c.name + " has an unsupported value or modifier: " + err.Error() + ".")
		}
		return true
	})
	if !isKnown {
		return newUnsupported("The search parameter " + c.name + " is not supported for " + strings.Join(s.types[:1], "") + ".")
	}
	if problem == nil {
		s.criteria = append(s.criteria, c)
	}
	return problem
}

// matches reports whether a resource matches the criterion.
func (c criterion) matches(r resource.Resource) (bool, error) {
	p, ok := searchparam.Lookup(r.Type, c.name)
	if !ok {
		return false, nil
	}
	switch {
	case c.modifier == "":
		return p.Matches(r, c.value)
	case c.modifier == "missing" && (c.value == "true" || c.value == "false"):
		return IsMissing(p, r) == (c.value == "true"), nil
	case c.modifier == "not" && p.Kind == searchparam.Token:
		found, err := p.Matches(r, c.value)
		return !found, err
	case p.Kind == searchparam.Reference && interaction.IsType(c.modifier):
		return p.Matches(r, c.modifier+"/"+strings.TrimPrefix(c.value, c.modifier+"/"))
	}
	return false, requestFailure{http.StatusBadRequest, "not-supported", "unsupported modifier " + c.modifier}
}

// IsMissing reports whether a resource has no value for a search parameter.
func IsMissing(p searchparam.Parameter, r resource.Resource) bool {
	for _, path := range p.Paths {
		for range r.Values(path) {
			return false
		}
	}
	return true
}

// include specifies additional resources: those that matches reference (_include) or that reference matches (_revinclude).
type include struct {
	isReverse bool
	source    string                // type of the resources that contain the reference
	parameter searchparam.Parameter // search parameter for the reference
	target    string                // type of the referenced resources; "" means any
}

// readInclude parses an _include or _revinclude value, such as Observation:subject or Observation:subject:Patient.
func readInclude(name, modifier, value string) (include, error) {
	parts := strings.Split(value, ":")
	if modifier != "" || len(parts) < 2 || len(parts) > 3 {
		return include{}, newUnsupported("The value of " + name + " must be Type:parameter or Type:parameter:Type, without a modifier.")
	}
	p, ok := searchparam.Lookup(parts[0], parts[1])
	if !ok || p.Kind != searchparam.Reference || len(p.Paths) == 0 {
		return include{}, newUnsupported("No reference parameter for _include or _revinclude: " + value + ".")
	}
	in := include{isReverse: name == "_revinclude", source: parts[0], parameter: p}
	if len(parts) == 3 {
		in.target = parts[2]
	}
	return in, nil
}

// References returns the resources that r references in the elements of a search parameter.
func References(r resource.Resource, by searchparam.Parameter) (found []interaction.Reference) {
	for _, path := range by.Paths {
		for element := range r.Values(path) {
			if to, _, ok := r.ReferenceTarget(element); ok && to.Base == "" && to.Contained == "" {
				found = append(found, interaction.Reference{Type: to.Type, ID: to.ID})
			}
		}
	}
	return found
}

// findIncluded returns the resources added by includes, without duplicates.
func (s *Store) findIncluded(q request, includes []include, matches []entry) (found []entry, err error) {
	seen := make(map[interaction.Reference]bool, len(matches))
	for _, m := range matches {
		seen[m.reference] = true
	}
	add := func(v *version) {
		if !seen[v.reference] {
			seen[v.reference] = true
			found = append(found, entry{v, "include"})
		}
	}
	for _, in := range includes {
		if in.isReverse {
			err = s.addReferencing(q, in, matches, add)
		} else {
			err = s.addReferenced(q, in, matches, add)
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// addReferenced adds the resources that the matches reference.
func (s *Store) addReferenced(q request, in include, matches []entry, add func(*version)) error {
	for _, m := range matches {
		if m.Type != in.source {
			continue
		}
		for _, to := range References(m.Resource, in.parameter) {
			if v, ok := s.current(to); ok && (in.target == "" || in.target == to.Type) {
				add(v)
			}
		}
	}
	return q.cancellationError()
}

// addReferencing adds the resources that reference the matches.
func (s *Store) addReferencing(q request, in include, matches []entry, add func(*version)) error {
	matched := make(map[interaction.Reference]bool, len(matches))
	for _, m := range matches {
		matched[m.reference] = in.target == "" || in.target == m.Type
	}
	return s.forEachResource(q, []string{in.source}, func(v *version) error {
		for _, to := range References(v.Resource, in.parameter) {
			if matched[to] {
				add(v)
			}
		}
		return nil
	})
}

// Default and maximum number of matches per page.
const (
	defaultCount = 50
	maxCount     = 1000
)

// bundle is the result of a search or a history. It is returned in pages.
type bundle struct {
	Type            string
	path            string // path relative to the base
	entries         []entry
	includedEntries func(page []entry) ([]entry, error) // returns additional entries for a page; may be nil
}

// entry is an entry of a result. Its mode is match or include.
type entry struct {
	*version
	mode string
}

// linkJSON, entryJSON and bundleJSON are the JSON forms of Bundle.link, Bundle.entry and Bundle.
type linkJSON struct {
	Relation string `json:"relation"`
	URL      string `json:"url"`
}

type entryJSON struct {
	FullURL  string            `json:"fullUrl,omitempty"`
	Resource json.RawMessage   `json:"resource,omitempty"`
	Search   map[string]string `json:"search,omitempty"`
	Request  map[string]string `json:"request,omitempty"`
	Response map[string]string `json:"response,omitempty"`
}

type bundleJSON struct {
	ResourceType string      `json:"resourceType"`
	Type         string      `json:"type"`
	Total        *int        `json:"total,omitempty"`
	Link         []linkJSON  `json:"link,omitempty"`
	Entry        []entryJSON `json:"entry,omitempty"`
}

// buildPage returns the page specified by _count and _offset. The parameters are repeated in its links.
func (b bundle) buildPage(q request, parameters []smart.Parameter) (reply, error) {
	count, err := numberParameter(q.Parameters, "_count", defaultCount)
	if err != nil {
		return reply{}, err
	}
	offset, err := numberParameter(q.Parameters, "_offset", 0)
	if err != nil {
		return reply{}, err
	}
	if parameterValue(q.Parameters, "_summary") == "count" {
		count = 0
	}
	total := len(b.entries)
	start := min(offset, total)
	end := min(start+min(count, maxCount), total)
	page := b.entries[start:end]
	out := bundleJSON{ResourceType: "Bundle", Type: b.Type, Total: &total, Link: []linkJSON{b.newLink(q, "self", parameters, offset)}}
	if count > 0 && end < total {
		out.Link = append(out.Link, b.newLink(q, "next", parameters, end))
	}
	if count > 0 && start > 0 {
		out.Link = append(out.Link, b.newLink(q, "previous", parameters, max(start-count, 0)))
	}
	if b.includedEntries != nil {
		included, err := b.includedEntries(page)
		if err != nil {
			return reply{}, err
		}
		page = append(slices.Clip(page), included...)
	}
	for _, e := range page {
		out.Entry = append(out.Entry, e.toJSON(q))
	}
	return out.reply()
}

// reply returns a response that contains the Bundle.
func (b bundleJSON) reply() (reply, error) {
	text, err := json.Marshal(b)
	return newReply(http.StatusOK, text), err
}

// newLink returns a Bundle.link to the page at offset.
func (b bundle) newLink(q request, relation string, parameters []smart.Parameter, offset int) linkJSON {
	var query []string
	for _, p := range parameters {
		if p.Name != "_offset" {
			query = append(query, p.Name+"="+url.QueryEscape(p.Value))
		}
	}
	if offset > 0 {
		query = append(query, "_offset="+strconv.Itoa(offset))
	}
	to := strings.TrimSuffix(q.base+"/"+b.path, "/")
	if len(query) > 0 {
		to += "?" + strings.Join(query, "&")
	}
	return linkJSON{relation, to}
}

// toJSON returns the entry of a searchset or a history. Entries of a history have no mode.
func (e entry) toJSON(q request) entryJSON {
	out := entryJSON{FullURL: q.base + "/" + e.reference.String(), Resource: e.text}
	if e.mode != "" {
		out.Search = map[string]string{"mode": e.mode}
		return out
	}
	to, status := e.reference.String(), http.StatusOK
	if e.method == http.MethodPost {
		to = e.reference.Type
	}
	switch {
	case e.text == nil:
		status = http.StatusNoContent
	case e.number == 1:
		status = http.StatusCreated
	}
	out.Request = map[string]string{"method": e.method, "url": to}
	out.Response = map[string]string{
		"status": strconv.Itoa(status), "etag": e.etag(), "lastModified": e.updatedAt.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	return out
}

// numberParameter returns the value of a numeric parameter, or fallback if it is missing.
func numberParameter(parameters []smart.Parameter, name string, fallback int) (int, error) {
	text := parameterValue(parameters, name)
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, newInvalid(name + " must be a non-negative integer.")
	}
	return int(n), nil
}

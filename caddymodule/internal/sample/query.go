package sample

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// query is what a search asks for.
type query struct {
	types    []string // all of them may be found
	criteria []criterion
	sort     []string
	includes []include
	heeded   []smart.Parameter // for the link to itself
}

// criterion is a parameter that says what resources are like.
type criterion struct{ name, modifier, value string }

// readQuery reads the parameters of a search. What is not supported is an error, unless the client prefers otherwise (R4
// search.html#errors).
func readQuery(q request) (query, error) {
	s := query{types: []string{q.Type}}
	if q.Type == "" || q.Type == smart.AnyType {
		s.types = interaction.Types()
		if types := value(q.Parameters, "_type"); types != "" {
			s.types = strings.Split(types, ",")
		}
	}
	for _, t := range s.types {
		if !interaction.IsType(t) {
			return query{}, invalid("_type names a type that FHIR R4 does not have.")
		}
	}
	lenient := strings.Contains(q.header.Get("Prefer"), "handling=lenient")
	for _, p := range q.Parameters {
		switch err := s.read(p, q.base); {
		case err == nil:
			s.heeded = append(s.heeded, p)
		case !lenient:
			return query{}, err
		}
	}
	return s, nil
}

// read reads one parameter. Base is the address of the server.
func (s *query) read(p smart.Parameter, base string) error {
	name, modifier, _ := strings.Cut(p.Name, ":")
	switch {
	case isForm(name), name == "_count", name == "_total", name == "_type":
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
		return invalid("_summary is one of true, false, text, data and count.")
	}
	return nil
}

// readSort reads the keys of _sort.
func (s *query) readSort(keys string) error {
	for key := range strings.SplitSeq(keys, ",") {
		name := strings.TrimPrefix(key, "-")
		if !s.anyType(func(t string) bool { p, ok := searchparam.Lookup(t, name); return ok && p.CanSort() }) {
			return unsupported("Sorting by " + name + " is not supported.")
		}
	}
	s.sort = strings.Split(keys, ",")
	return nil
}

// anyType reports whether a function is true for one of the types.
func (s *query) anyType(is func(resourceType string) bool) bool {
	return slices.ContainsFunc(s.types, is)
}

// readCriterion checks a criterion by asking it of a resource that has nothing. An absolute reference to a resource of
// this server is as good as a relative one.
func (s *query) readCriterion(c criterion, base string) error {
	var problem error
	known := s.anyType(func(t string) bool {
		p, ok := searchparam.Lookup(t, c.name)
		if !ok || len(p.Paths) == 0 {
			return false
		}
		if p.Kind == searchparam.Reference {
			c.value = strings.TrimPrefix(c.value, base+"/")
		}
		if _, err := c.holds(resource.Resource{Type: t}); err != nil {
			problem = invalid("The parameter " + c.name + " has a value or a modifier that is not supported: " + err.Error() + ".")
		}
		return true
	})
	if !known {
		return unsupported("The search parameter " + c.name + " is not supported for " + strings.Join(s.types[:1], "") + ".")
	}
	if problem == nil {
		s.criteria = append(s.criteria, c)
	}
	return problem
}

// holds reports whether a resource is as the criterion says.
func (c criterion) holds(r resource.Resource) (bool, error) {
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
	return false, failure{http.StatusBadRequest, "not-supported", "modifier " + c.modifier}
}

// IsMissing reports whether a resource has no value for a parameter.
func IsMissing(p searchparam.Parameter, r resource.Resource) bool {
	for _, path := range p.Paths {
		for range r.Values(path) {
			return false
		}
	}
	return true
}

package remote

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Route says which server answers for some code systems.
type Route struct {
	// Prefix is the start of the canonicals of code systems and value sets, up to where a part ends: http://x/icd-10
	// covers http://x/icd-10/vs, and not http://x/icd-10-cm.
	Prefix string

	// Server answers for them.
	Server *Server
}

// Routes choose the server to ask. The zero value has none, so that the next handler is asked.
type Routes struct {
	routes   []Route
	fallback *Server
}

// NewRoutes returns routes. Where none fits, fallback is asked, or the next handler if it is nil. It fails on a route
// without prefix or server, and on two with the same prefix.
func NewRoutes(fallback *Server, routes ...Route) (*Routes, error) {
	seen := make(map[string]bool)
	for _, r := range routes {
		switch prefix := strings.TrimSuffix(r.Prefix, "/"); {
		case prefix == "" || r.Server == nil:
			return nil, fmt.Errorf("route %q: there must be the start of a canonical, and a server", r.Prefix)
		case seen[prefix]:
			return nil, fmt.Errorf("route %s: there are two of it", r.Prefix)
		default:
			seen[prefix] = true
		}
	}
	return &Routes{routes: routes, fallback: fallback}, nil
}

// Server returns the server to ask, or nil for the next handler. The value set's url decides, then each code system in
// turn; the longest prefix counts.
func (r *Routes) Server(s Subject) *Server {
	for _, canonical := range append([]string{s.ValueSet}, s.Systems...) {
		if server := r.find(canonical); server != nil {
			return server
		}
	}
	return r.fallback
}

func (r *Routes) find(canonical string) (server *Server) {
	longest := -1
	for _, route := range r.routes {
		if prefix := strings.TrimSuffix(route.Prefix, "/"); len(prefix) > longest && begins(canonical, prefix) {
			longest, server = len(prefix), route.Server
		}
	}
	return server
}

func begins(canonical, prefix string) bool {
	rest, ok := strings.CutPrefix(canonical, prefix)
	return ok && (rest == "" || strings.ContainsRune("/?|#", rune(rest[0])))
}

// Subject is what an operation is about, as far as it decides who is asked.
type Subject struct {
	// ValueSet is the canonical of the value set; empty if unknown.
	ValueSet string

	// Systems are the urls of code systems; the first counts most.
	Systems []string
}

// Lacking puts first what an error of package terminology says is missing here: whoever has it can answer.
func (s Subject) Lacking(err error) Subject {
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		for _, m := range failed.Missing {
			s.Systems = append([]string{m.Canonical}, s.Systems...)
		}
	}
	return s
}

// SubjectOf finds in a question the url of the value set or code system, the systems of codings, and those that a value set
// in the body includes. It skips what cannot be understood, which whoever is asked will refuse.
func SubjectOf(q Question) (s Subject) {
	for i := range q.inputs {
		switch in := &q.inputs[i]; {
		case in.Name == "url" && s.ValueSet == "":
			s.ValueSet = in.Value
		case in.Name == "system" && in.Value != "":
			s.Systems = append(s.Systems, in.Value)
		case in.Name == "valueSet":
			s.addValueSet(in.Resource)
		case in.Complex != nil:
			s.addCodings(in.Complex)
		}
	}
	return s
}

type coding struct {
	System string `json:"system"`
}

// addCodings adds what a Coding or a CodeableConcept names.
func (s *Subject) addCodings(value jsontext.Value) {
	var c struct {
		coding
		Coding []coding `json:"coding"`
	}
	if json.Unmarshal(value, &c, jsontext.AllowDuplicateNames(true)) != nil {
		return
	}
	for _, c := range append(c.Coding, c.coding) {
		if c.System != "" {
			s.Systems = append(s.Systems, c.System)
		}
	}
}

// addValueSet adds what a value set in the request includes. Its own url counts only if a code system implies it.
func (s *Subject) addValueSet(resource jsontext.Value) {
	var vs struct {
		ResourceType string `json:"resourceType"`
		URL          string `json:"url"`
		Compose      struct {
			Include []struct {
				System   string   `json:"system"`
				ValueSet []string `json:"valueSet"`
			} `json:"include"`
		} `json:"compose"`
	}
	if json.Unmarshal(resource, &vs, jsontext.AllowDuplicateNames(true)) != nil || vs.ResourceType != "ValueSet" {
		return
	}
	for _, in := range vs.Compose.Include {
		if in.System != "" {
			s.Systems = append(s.Systems, in.System)
		}
		s.Systems = append(s.Systems, in.ValueSet...)
	}
	if s.ValueSet == "" && strings.Contains(vs.URL, "?fhir_vs") {
		s.ValueSet = vs.URL
	}
}

package remote

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Route assigns a server to code systems and value sets.
type Route struct {
	// Prefix consists of full path segments of a canonical: http://x/icd-10 matches http://x/icd-10/vs, not http://x/icd-10-cm.
	Prefix string

	// Server is the server for requests about these canonicals.
	Server *Server
}

// Routes selects the server for a request. The zero value always selects the next handler.
type Routes struct {
	routes   []Route
	fallback *Server
}

// NewRoutes returns routes. Requests without a matching route are sent to fallback or, if it is nil, to the next handler.
// NewRoutes returns an error if prefixes are not unique or a route has no prefix or no server.
func NewRoutes(fallback *Server, routes ...Route) (*Routes, error) {
	seen := make(map[string]bool)
	for _, r := range routes {
		switch prefix := strings.TrimSuffix(r.Prefix, "/"); {
		case prefix == "" || r.Server == nil:
			return nil, fmt.Errorf("route %q: the prefix of a canonical and a server are required", r.Prefix)
		case seen[prefix]:
			return nil, fmt.Errorf("duplicate route %s", r.Prefix)
		default:
			seen[prefix] = true
		}
	}
	return &Routes{routes: routes, fallback: fallback}, nil
}

// Server returns the server for a subject, or nil if the request must be sent to the next handler. It looks for a route for the
// value set first, then for each code system in order. The longest matching prefix wins.
func (r *Routes) Server(s RoutingKey) *Server {
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
		if prefix := strings.TrimSuffix(route.Prefix, "/"); len(prefix) > longest && hasPathPrefix(canonical, prefix) {
			longest, server = len(prefix), route.Server
		}
	}
	return server
}

func hasPathPrefix(canonical, prefix string) bool {
	rest, ok := strings.CutPrefix(canonical, prefix)
	return ok && (rest == "" || strings.ContainsRune("/?|#", rune(rest[0])))
}

// RoutingKey contains the canonicals of a request that determine its server.
type RoutingKey struct {
	// ValueSet is the canonical of the value set; empty if unknown.
	ValueSet string

	// Systems are the URLs of the code systems in order of priority.
	Systems []string
}

// WithMissing prepends the missing definitions of err to the subject: a server that has them can handle the request.
func (s RoutingKey) WithMissing(err error) RoutingKey {
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		for _, m := range failed.Missing {
			s.Systems = append([]string{m.Canonical}, s.Systems...)
		}
	}
	return s
}

// SubjectOf returns the subject of a request. It consists of the URL of the value set or code system, the systems of codings,
// and the systems that a value set in the body includes. Invalid values are ignored because the server will reject them.
func SubjectOf(q ParsedRequest) (s RoutingKey) {
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

// addCodings adds the code systems of a Coding or CodeableConcept.
func (s *RoutingKey) addCodings(value jsontext.Value) {
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

// addValueSet adds the code systems of a value set in the request. If the value set is implicit, it also adds its URL.
func (s *RoutingKey) addValueSet(resource jsontext.Value) {
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

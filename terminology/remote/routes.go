package remote

import (
	"fmt"
	"strings"
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

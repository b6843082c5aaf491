package remote

import (
	"fmt"
	"strings"
)

// Route says which server answers for some code systems.
type Route struct {
	// Prefix is the start of the canonicals of the code systems and value sets that are meant, up to a
	// place where one may end: http://x/icd-10 is the start of http://x/icd-10 and http://x/icd-10/vs,
	// and not of http://x/icd-10-cm.
	Prefix string

	// Server answers for them.
	Server *Server
}

// Routes says which server answers for what. The zero value has none, so that the next handler is asked.
type Routes struct {
	routes   []Route
	fallback *Server
}

// NewRoutes returns routes; what none of them is for is for fallback, or, where that is nil, for the next
// handler. It fails on routes without a prefix or a server, and on two with the same prefix.
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

// Server returns the server that is to be asked about something, or nil for the next handler. The value set's
// own url decides, then each code system in turn; of several routes the one with the longest prefix.
func (r *Routes) Server(s Subject) *Server {
	for _, canonical := range append([]string{s.ValueSet}, s.Systems...) {
		if server := r.find(canonical); server != nil {
			return server
		}
	}
	return r.fallback
}

// find returns the server with the longest prefix of a canonical, or nil.
func (r *Routes) find(canonical string) (server *Server) {
	longest := -1
	for _, route := range r.routes {
		if prefix := strings.TrimSuffix(route.Prefix, "/"); len(prefix) > longest && begins(canonical, prefix) {
			longest, server = len(prefix), route.Server
		}
	}
	return server
}

// begins reports whether a canonical begins with a prefix that ends where something ends.
func begins(canonical, prefix string) bool {
	rest, ok := strings.CutPrefix(canonical, prefix)
	return ok && (rest == "" || strings.ContainsRune("/?|#", rune(rest[0])))
}

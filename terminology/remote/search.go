package remote

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// search is a request for a part of an expansion.
type search struct {
	key  string
	page expansion.Page
	rest url.Values // the other parameters
	q    Request
	xml  bool // the answer is wanted in XML
}

// searchOf reads a request. It returns false for one that only the server can answer.
func searchOf(s *Server, q Question) (search, bool) {
	if !strings.HasSuffix(q.Request.Path, "$expand") || q.err != nil || !q.paged {
		return search{}, false
	}
	x := search{page: q.page, rest: make(url.Values), q: q.Request}
	format := q.Request.accept()
	seen := make(map[string]bool)
	for i := range q.inputs {
		in := &q.inputs[i]
		isPage, isFormat := slices.Contains(paging, in.Name), in.Name == "_format"
		again := seen[in.Name]
		seen[in.Name] = true
		switch {
		case (isPage || isFormat) && again:
			return search{}, false
		case in.Name == "_pretty", in.Complex != nil, in.Resource != nil, in.Parts != nil:
			return search{}, false
		case isFormat && in.Value != "":
			format = in.Value
		case !isPage && !isFormat:
			x.rest.Add(in.Name, in.Value)
		}
	}
	x.xml = strings.Contains(format, "xml")
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Request.Path, x.rest.Encode(), q.Request.AcceptLanguage)
	if x.xml && !negotiation.HasXML() {
		return search{}, false
	}
	return x, x.xml != strings.Contains(format, "json")
}

// isPart reports whether a page is not all of n entries.
func isPart(p expansion.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}

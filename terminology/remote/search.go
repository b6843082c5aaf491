package remote

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// search is a question for a part of an expansion.
type search struct {
	key  string
	page terminology.Page
	rest url.Values // the other parameters
	q    Question
	xml  bool // is how the answer is wanted, and not in JSON
}

// searchOf understands a question. It is false for one that is better left to the server.
func searchOf(s *Server, q Question) (search, bool) {
	if !strings.HasSuffix(q.Path, "$expand") {
		return search{}, false
	}
	values, err := q.parameters()
	format := cmp.Or(values.Get("_format"), q.accept())
	x := search{rest: values, q: q, xml: strings.Contains(format, "xml")}
	if err != nil || x.xml == strings.Contains(format, "json") || values.Has("_pretty") {
		return search{}, false
	}
	x.page.Filter = strings.TrimSpace(values.Get("filter"))
	for name, n := range map[string]**int{"offset": &x.page.Offset, "count": &x.page.Count} {
		if values.Has(name) {
			number, err := strconv.ParseUint(values.Get(name), 10, 31)
			if err != nil {
				return search{}, false
			}
			*n = new(int)
			**n = int(number)
		}
	}
	for _, name := range []string{"filter", "offset", "count", "_format"} {
		if len(values[name]) > 1 {
			return search{}, false
		}
		delete(values, name)
	}
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Path, values.Encode(), q.AcceptLanguage)
	return x, true
}

// isPart reports whether a page is not all of n entries.
func isPart(p terminology.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}

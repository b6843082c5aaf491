package remote

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
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
func searchOf(s *Server, q Request) (search, bool) {
	if !strings.HasSuffix(q.Path, "$expand") {
		return search{}, false
	}
	inputs, err := q.inputs()
	page, ok := pageOf(inputs)
	if err != nil || !ok {
		return search{}, false
	}
	x := search{page: page, rest: make(url.Values), q: q}
	format := q.accept()
	for i := range inputs {
		in := &inputs[i]
		isPage, isFormat := isPaging(in.Name), in.Name == "_format"
		switch {
		case (isPage || isFormat) && parameters.Find(inputs[:i], in.Name) != nil:
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
	x.key = fmt.Sprintf("%p %s %s?%s %s", s, s.base, q.Path, x.rest.Encode(), q.AcceptLanguage)
	return x, x.xml != strings.Contains(format, "json")
}

// pageOf reads the parameters that say which part of an expansion is wanted. It returns false if one is wrong.
func pageOf(inputs []parameters.Input) (expansion.Page, bool) {
	var q expansion.Query
	for i := range inputs {
		if isPaging(inputs[i].Name) {
			if _, err := q.Set(&inputs[i]); err != nil {
				return q.Page, false
			}
		}
	}
	q.Filter = strings.TrimSpace(q.Filter)
	return q.Page, true
}

func isPaging(name string) bool {
	return name == "filter" || name == "offset" || name == "count" || name == "explainFilter"
}

// isPart reports whether a page is not all of n entries.
func isPart(p expansion.Page, n int) bool {
	return p.Offset != nil && *p.Offset > 0 || p.Count != nil && *p.Count < n
}

// inputs returns the parameters of a request. Beside an error, it returns those that it understands.
func (q *Request) inputs() ([]parameters.Input, error) {
	inputs, err := parameters.QueryInputs(q.Query)
	if len(q.Body) == 0 || q.method() != http.MethodPost {
		return inputs, err
	}
	inputs, failed := parameters.AddBody(inputs, q.ContentType, q.Body, "valueSet")
	if err == nil {
		err = failed
	}
	return inputs, err
}

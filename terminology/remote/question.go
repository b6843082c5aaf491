package remote

import (
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Question is a request with its parameters. Make one with [Read].
type Question struct {
	Request Request // as it was

	inputs []parameters.Input // as far as they can be understood
	page   expansion.Page
	err    error // of reading inputs
	paged  bool  // page could be read
}

// paging are the parameters that say which part of an expansion is wanted.
var paging = []string{"filter", "offset", "count"}

// Read reads the parameters of a request.
func Read(request Request) Question {
	q := Question{Request: request, paged: true}
	if q.inputs, q.err = parameters.QueryInputs(request.Query); request.method() == http.MethodPost && len(request.Body) > 0 {
		var err error
		if q.inputs, err = parameters.AddBody(q.inputs, request.ContentType, request.Body, "valueSet"); q.err == nil {
			q.err = err
		}
	}
	var query expansion.Query
	for i := range q.inputs {
		if in := &q.inputs[i]; slices.Contains(paging, in.Name) {
			_, err := query.Set(in)
			q.paged = q.paged && err == nil
		}
	}
	q.page = query.Page
	q.page.Filter = strings.TrimSpace(q.page.Filter)
	return q
}

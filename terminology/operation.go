package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// operation is a request for an operation while a handler answers it.
type operation struct {
	*http.Request
	handler *Handler
	library *Library // that it is answered from
	budget  budget   // what it may cost
}

// begin begins to answer a request.
func (h *Handler) begin(r *http.Request) *operation {
	l := h.current()
	return &operation{Request: r, handler: h, library: l, budget: budget{Context: r.Context(), limit: l.bounds.gathered, turn: h.Turn}}
}

// read reads the parameters of an operation.
func (o *operation) read(w http.ResponseWriter, bare string) ([]input, error) {
	switch o.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return o.readInputs(w, bare)
	}
	return nil, &Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "operations are answered to GET, HEAD and POST only"}
}

// instance returns the id in the path of an operation on an instance, [base]/Type/id/$operation, or "".
func instance(path string) string {
	path = path[:max(0, strings.LastIndexByte(path, '/'))]
	last := path[strings.LastIndexByte(path, '/')+1:]
	if last == "" || 'A' <= last[0] && last[0] <= 'Z' && !strings.ContainsAny(last, "-.0123456789") && isResourceType(last) {
		return ""
	}
	return last
}

// isResourceType reports whether a part of a path is a resource type of which there are operations here.
func isResourceType(name string) bool {
	return name == "ValueSet" || name == "CodeSystem" || name == "ConceptMap"
}

// fill adds to the parameters what the path and the headers of a request say.
func (o *operation) fill(p *parameters) {
	r := o.Request
	p.get = r.Method != http.MethodPost
	p.ID = instance(r.URL.Path)
	if header := r.Header.Get("Accept-Language"); header != "*" {
		p.Language.Accept = header
	}
	p.cacheKey, p.cached = cacheKey(o, p.cacheID)
	p.Limits = o.handler.Limits
	p.Limits.Entries = o.limit()
}

// limit returns how many codes the answer may hold. A client can ask for a lower limit, to try out what happens when it
// is reached.
func (o *operation) limit() int {
	limit := o.handler.Limits.entries()
	if header := o.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// libraryWith returns a library with what a request brings along, or the library itself if that is nothing.
func (o *operation) libraryWith(l *Library, p *parameters) (*Library, error) {
	if len(p.resources) == 0 && !p.cached {
		return l, nil
	}
	if err := o.budget.read(sizeOf(p.resources)); err != nil {
		return nil, err
	}
	if limit := cmp.Or(o.handler.MaxResources, defaultMaxResources); len(p.resources) > limit {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("there may be at most %d tx-resource parameters", limit)}
	}
	limit := cmp.Or(o.handler.MaxRemembered, defaultMaxRemembered)
	if !p.cached || limit < 0 {
		return l.With(p.resources...)
	}
	return o.handler.remembered.library(l, p.cacheKey, p.resources, limit, &o.budget)
}

// expand expands what a request asks for, from a library and what the request brings along.
func (o *operation) expand(l *Library, p *parameters) (*Expansion, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	l, err := o.libraryWith(l, p)
	if err != nil {
		return nil, err
	}
	return l.Expand(&o.budget, p.Query)
}

// orProvisional returns an answer, or, if it says no for lack of definitions and others may have them, an error that
// holds it.
func (o *operation) orProvisional(body []byte, missed []Missing) ([]byte, error) {
	if !o.handler.Others || len(missed) == 0 {
		return body, nil
	}
	e := incomplete("not-found", "the answer rests on what is not here: %v", missed[0])
	e.Missing, e.Provisional = missed, &Provisional{Body: body}
	return nil, e
}

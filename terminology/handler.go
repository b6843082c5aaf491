package terminology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Handler answers the operations of a terminology service over HTTP from a library (interface.md §4.2; R4
// ValueSet operation expand).
type Handler struct {
	// Library is what value sets are looked up in. Required, unless Current is set.
	Library *Library

	// Current returns the library that a request is answered from, in place of Library: that of a [Watch].
	// It is asked once for each request. Default: none.
	Current func() *Library

	// Fetched has definitions that the library has not, and fetches them. Default: nil, they are missing.
	Fetched *Fetched

	// Others says that others can be asked: an answer of $validate-code or $translate that says no, and rests on
	// definitions which are not here, is then not written but returned, as [Error.Provisional] of an error that wraps
	// [ErrIncomplete]. Default: false, it is written.
	Others bool

	// Limits bounds what one request may ask for.
	Limits Limits

	// MaxBody is how large the body of a request may be, in bytes. A larger one is refused with 413.
	// Default: 16 MiB.
	MaxBody int64

	// MaxResources is how many definitions a request may bring with it, as tx-resource. More are refused
	// with 413. Default: 200.
	MaxResources int

	// MaxRemembered is how much of what requests bring along under a cache-id is remembered, in bytes of
	// JSON; the libraries made of it take some times as much. Beyond it, the one that was not asked for
	// longest is forgotten. Default: 16 MiB; negative: nothing is remembered.
	MaxRemembered int64

	// Version is what the CapabilityStatement says of the software's version. Default: nothing.
	Version string

	// Released is what the CapabilityStatement says of when that version was released. Default: nothing.
	Released time.Time

	// Security is what the CapabilityStatement says of how requests are authorized, as codes of
	// http://terminology.hl7.org/CodeSystem/restful-security-service. Default: nothing.
	Security []string

	// Turn waits until there is room for a costly request, and returns what gives the room back. It is asked for a
	// request that takes more than a few milliseconds, with its context; one that it refuses fails with the status
	// 503 and an error that wraps [ErrBusy]. Default: there is always room.
	Turn func(ctx context.Context) (leave func(), err error)

	// Principal names whom a request without credentials was authorised for, where the server around has taken the
	// credentials away: what requests bring along under a cache-id is remembered for one principal alone. Default:
	// requests without credentials are of one principal.
	Principal func(ctx context.Context) string

	remembered resourceCache
}

// asking is a request for an operation, with what it may cost.
type asking struct {
	*http.Request
	library   *Library // that it is answered from
	budget    budget
	principal func(context.Context) string
}

// ask begins to answer a request.
func (h *Handler) ask(r *http.Request) *asking {
	l := h.current()
	return &asking{Request: r, library: l, budget: budget{Context: r.Context(), limit: l.bounds.gathered, turn: h.Turn}, principal: h.Principal}
}

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; that the request is one of these
// is for the caller to know. It writes the answer, or else nothing and returns an [*Error]. The error wraps
// [ErrUnknown], [ErrIncomplete] or [ErrUnsupported] where another server may be able to answer; one with the
// status 502 or 504 says that a definition could not be fetched. An error of any other type means that the answer could not be written whole.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	q := h.ask(r)
	defer q.budget.rest()
	inputs, err := h.operation(w, q, "valueSet")
	if err != nil {
		return err
	}
	var p parameters
	if err := p.read(inputs); err != nil {
		return err
	}
	h.complete(&p, q)
	if !p.subset.hasCodes() {
		p.Limits.Entries = math.MaxInt // none of them is written
	}
	defer runtime.KeepAlive(q.library) // its memory is given back when it is gone
	x, err := h.expand(q, q.library, &p)
	if err != nil {
		x, err = completed(q, h.Fetched, q.library, err, func(l *Library) (*Expansion, error) { return h.expand(q, l, &p) })
	}
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(x.library)
	q.budget.rest()
	return writeExpansion(w, r, x, &p)
}

// expand expands what a request asks for, from a library and what the request brings along.
func (h *Handler) expand(q *asking, l *Library, p *parameters) (*Expansion, error) {
	l, err := h.with(l, p, &q.budget)
	if err != nil {
		return nil, err
	}
	return l.Expand(&q.budget, p.Query)
}

// complete completes parameters with what a request says beside them.
func (h *Handler) complete(p *parameters, q *asking) {
	r := q.Request
	p.budget = &q.budget
	p.plain = r.Method != http.MethodPost
	p.ID = instance(r.URL.Path)
	if header := r.Header.Get("Accept-Language"); header != "*" {
		p.Language.Accept = header
	}
	p.cacheKey, p.cached = cacheKey(q, p.cacheID)
	p.Limits = h.Limits
	p.Limits.Entries = h.limit(r)
}

// serve answers an operation that makes one resource of its parameters: how it is written is settled before
// it is made, and nothing is written where it cannot be.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer func(q *asking, l *Library, inputs []input) ([]byte, error)) error {
	q := h.ask(r)
	defer q.budget.rest()
	inputs, err := h.operation(w, q, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	l := q.library
	defer runtime.KeepAlive(l)
	body, err := answer(q, l, inputs)
	if err != nil {
		body, err = completed(q, h.Fetched, l, err, func(l *Library) ([]byte, error) { return answer(q, l, inputs) })
	}
	if err != nil {
		return f.provisional(err)
	}
	q.budget.rest()
	return f.write(w, r, body)
}

// unlessOthers is an answer that says no and rests on definitions which are not here, or the error for it where others
// may have them.
func (h *Handler) unlessOthers(body []byte, missed []Missing) ([]byte, error) {
	if !h.Others || len(missed) == 0 {
		return body, nil
	}
	e := incomplete("not-found", "the answer rests on what is not here: %v", missed[0])
	e.Missing, e.Provisional = missed, &Provisional{Body: body}
	return nil, e
}

// provisional puts an error's provisional answer, which is in JSON, into the format.
func (f format) provisional(err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Provisional == nil {
		return err
	}
	kind, body, failed := f.encode(e.Provisional.Body)
	if failed != nil {
		return failed
	}
	e.Provisional = &Provisional{ContentType: kind[0], Body: body}
	return err
}

// operation reads the parameters of a request for an operation.
func (h *Handler) operation(w http.ResponseWriter, q *asking, bare string) ([]input, error) {
	switch q.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return h.readInputs(w, q, bare)
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

// limit returns how many codes the answer to a request may hold. A client can ask for less than is set, so
// that it can try out what happens when the limit is reached.
func (h *Handler) limit(r *http.Request) int {
	limit := h.Limits.entries()
	if header := r.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// with returns a library with what a request brings along. Where it brings nothing, that is the library itself.
func (h *Handler) with(l *Library, p *parameters, b *budget) (*Library, error) {
	if len(p.resources) == 0 && !p.cached {
		return l, nil
	}
	if err := b.read(sizeOf(p.resources)); err != nil {
		return nil, err
	}
	if limit := cmp.Or(h.MaxResources, defaultMaxResources); len(p.resources) > limit {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf("there may be at most %d tx-resource parameters", limit)}
	}
	limit := cmp.Or(h.MaxRemembered, defaultMaxRemembered)
	if !p.cached || limit < 0 {
		return l.With(p.resources...)
	}
	return h.remembered.library(l, p.cacheKey, p.resources, limit, b)
}

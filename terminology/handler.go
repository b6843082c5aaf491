package terminology

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	// MaxEntries is how many codes one answer may hold. A request that would get more, having asked for
	// no page or too large a one, is refused as too costly. Default: 10,000.
	MaxEntries int

	// MaxBody is how large the body of a request may be, in bytes. A larger one is refused with 413.
	// Default: 16 MiB.
	MaxBody int64

	// MaxResources is how many definitions a request may bring with it, as tx-resource. More are refused
	// with 413. Default: 200.
	MaxResources int

	// MaxFilterLength is how long the parameter filter may be, in bytes. A longer one is refused with 400.
	// Default: 1000.
	MaxFilterLength int

	// MaxFilterWords is how many words the parameter filter may have. More are refused with 400.
	// Default: 20.
	MaxFilterWords int

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
	return &asking{Request: r, library: l, budget: budget{ctx: r.Context(), limit: l.maxGathered, turn: h.Turn}, principal: h.Principal}
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
	p, err := parseParameters(inputs)
	if err != nil {
		return err
	}
	p.of(q)
	p.plain = r.Method != http.MethodPost
	p.library = q.library
	defer runtime.KeepAlive(p.library) // its memory is given back when it is gone
	a, err := h.answer(p, h.limit(r))
	if err != nil {
		a, err = completed(q, h.Fetched, p.library, err, func(l *Library) (*answer, error) {
			again := *p
			again.library = l
			return h.answer(&again, h.limit(r))
		})
	}
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a.library)
	q.budget.rest()
	return a.write(w, r, inputs)
}

// of takes over what a request says beside its parameters.
func (p *parameters) of(q *asking) {
	r := q.Request
	p.budget = &q.budget
	p.id = instance(r.URL.Path)
	if header := r.Header.Get("Accept-Language"); header != "*" {
		p.languageHeader = header
	}
	p.cacheKey, p.cached = cacheKey(q, p.cacheID)
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
	return f.write(w, r, http.StatusOK, body)
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
	limit := cmp.Or(h.MaxEntries, defaultMaxEntries)
	if header := r.Header.Get("X-Too-Costly-Threshold"); header != "" {
		if n, err := strconv.Atoi(header); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	return limit
}

// answer expands the value set that is meant and chooses the page.
func (h *Handler) answer(p *parameters, limit int) (*answer, error) {
	if err := h.checkFilter(p); err != nil {
		return nil, err
	}
	l, vs, err := h.subject(p)
	if err != nil {
		return nil, err
	}
	if err := p.adopt(vs.defaults); err != nil {
		return nil, err
	}
	options := p.options()
	x, err := l.expansion(vs, &options)
	if err != nil {
		return nil, err
	}
	a := &answer{library: l, valueSet: vs, expansion: x, parameters: p}
	if languages := p.language(vs); languages != "" {
		a.languages = parseLanguages(languages)
	}
	if a.page, a.total, err = l.page(x, p, a.languages.list()); err != nil {
		return nil, err
	}
	if len(a.page) > limit && p.subset.hasCodes() {
		return nil, tooCostly(vs, limit)
	}
	if err := p.budget.spend(len(a.page) * (len(x.supplements) + (len(p.designations)+len(p.properties))/askedPerStep)); err != nil {
		return nil, err
	}
	a.detailed = p.wantsDesignations() || len(p.properties) > 0 || !a.languages.none() || len(x.supplements) > 0
	a.shape = a.chooseShape()
	return a, nil
}

// askedPerStep is how many of the designations and properties that a request asks for are looked through in one step,
// for each code of the answer.
const askedPerStep = 4

// chooseShape returns the tree that the answer is to be shown as, or nil. Who asks by GET is given one only where
// excludeNested is false, since it mostly reads the codes at the top alone; no other parameter counts here, or a client
// that adds one would lose codes. A part of an expansion is a list, and what a text filter found is one as well, save
// where the value set is itself made by a filter: its concepts keep their places then, unless they are paged.
func (a *answer) chooseShape() *tree {
	p, x := a.parameters, a.expansion
	if !x.tree || !p.wantsTree() || len(a.page) < a.total || p.offset != nil && *p.offset > 0 {
		return nil
	}
	if p.filter == nil {
		return x.shape
	}
	if !x.filtered || p.count != nil {
		return nil
	}
	return a.library.shape(a.page, true)
}

// wantsTree reports whether the answer may be a tree. By GET, that takes a request that says so; a value set's own
// parameters are not enough.
func (p *parameters) wantsTree() bool {
	if p.plain {
		return p.excludeNested == no && p.has("excludeNested")
	}
	return p.excludeNested != yes
}

// tooCostly is the error for an answer that would be too large.
func tooCostly(vs *valueSet, limit int) error {
	return issue(http.StatusUnprocessableEntity, "too-costly", "", "VALUESET_TOO_COSTLY",
		fmt.Sprintf("The value set '%s' expansion has too many codes to return (more than %d); ask for a part, with offset and count", vs.canonical(), limit))
}

// options returns the parameters that decide which codes are in the expansion.
func (p *parameters) options() expansionOptions {
	return expansionOptions{
		rules: p.rules, supplements: p.supplements, date: p.date,
		activeOnly: p.activeOnly == yes, notForUI: p.excludeNotForUI == yes, budget: p.budget,
	}
}

// adopt takes over parameters that a value set gives for its own expansion, where the request has none.
func (p *parameters) adopt(defaults []input) error {
	for i := range defaults {
		in := &defaults[i]
		if in.name == "displayLanguage" || p.has(in.name) {
			continue
		}
		if _, err := p.set(in); err != nil {
			return err
		}
	}
	return nil
}

// checkFilter checks the limits of the parameter filter.
func (h *Handler) checkFilter(p *parameters) error {
	if p.filter == nil {
		return nil
	}
	if limit := cmp.Or(h.MaxFilterLength, defaultMaxFilterLength); len(*p.filter) > limit {
		return badRequest("too-long", "the filter may be at most %d bytes long", limit)
	}
	limit := cmp.Or(h.MaxFilterWords, defaultMaxFilterWords)
	if len(*p.filter) >= 2*limit && len(strings.Fields(*p.filter)) > limit {
		return badRequest("too-long", "the filter may have at most %d words", limit)
	}
	return nil
}

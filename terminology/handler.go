package terminology

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
)

// Handler answers $expand over HTTP from a library (interface.md §4.2).
type Handler struct {
	// Library is what value sets are looked up in. Required.
	Library *Library

	// MaxEntries is how many codes one answer may hold. A request that would get more, having asked for
	// no page or too large a one, is refused as too costly. Default: 10,000.
	MaxEntries int
}

// defaultMaxEntries is the default of Handler.MaxEntries.
const defaultMaxEntries = 10_000

// Expand answers a GET or HEAD of [base]/ValueSet/$expand; that the request is one is for the caller to
// know. It writes the answer, or else nothing and returns an [*Error]. The error wraps [ErrUnknown],
// [ErrIncomplete] or [ErrUnsupported] where another server may be able to answer. An error of any other
// type means that the answer could not be written whole.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "$expand is answered to GET and HEAD only"}
	}
	p, err := parseParameters(r.URL.RawQuery)
	if err != nil {
		return err
	}
	buffer := buffers.Get().(*[]byte)
	defer putBuffer(buffer)
	*buffer, err = h.answer((*buffer)[:0], p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/fhir+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(*buffer)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := w.Write(*buffer); err != nil {
		return fmt.Errorf("writing the expansion: %w", err)
	}
	return nil
}

// buffers holds the byte slices that answers are made in.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 8<<10); return &b }}

// putBuffer gives a buffer back, unless it is so large that it had better not be kept.
func putBuffer(buffer *[]byte) {
	if cap(*buffer) <= 1<<20 {
		buffers.Put(buffer)
	}
}

// answer appends the expanded value set to dst.
func (h *Handler) answer(dst []byte, p parameters) ([]byte, error) {
	vs, ok := h.Library.valueSet(p.url)
	if !ok {
		return dst, &Error{Status: http.StatusNotFound, Code: "not-found", Err: ErrUnknown, Text: fmt.Sprintf("value set %s is not known", p.url)}
	}
	x, err := h.Library.expansion(vs)
	if err != nil {
		return dst, err
	}
	page, total := h.Library.page(x, p)
	if limit := h.maxEntries(); len(page) > limit {
		return dst, unprocessable("too-costly", "the answer would hold %d codes; ask for at most %d at a time, with offset and count", len(page), limit)
	}
	return h.Library.appendAnswer(dst, &answer{valueSet: vs, expansion: x, parameters: p, page: page, total: total}), nil
}

// maxEntries returns MaxEntries or its default.
func (h *Handler) maxEntries() int {
	if h.MaxEntries == 0 {
		return defaultMaxEntries
	}
	return h.MaxEntries
}

// page returns the entries that were asked for, and how many match in all.
func (l *Library) page(x *expansion, p parameters) (page []entry, total int) {
	matching := x.entries
	if p.filter != nil {
		if filter := newTextFilter(*p.filter); filter != nil {
			from, to := p.window(math.MaxInt)
			return l.search(x, filter, "", from, to)
		}
	}
	from, to := p.window(len(matching))
	return matching[from:to], len(matching)
}

// window returns the range of the page in a list of n entries.
func (p parameters) window(n int) (from, to int) {
	to = n
	if p.offset != nil {
		from = min(*p.offset, n)
	}
	if p.count != nil {
		to = min(from+*p.count, n)
	}
	return from, to
}

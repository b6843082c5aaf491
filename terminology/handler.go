package terminology

import (
	"context"
	"net/http"
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

	// Statement is what the CapabilityStatement says beside what can be asked.
	Statement Statement

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

// Statement is what a CapabilityStatement says of the server.
type Statement struct {
	// Version is what is said of the software's version. Default: nothing.
	Version string

	// Released is what is said of when that version was released. Default: nothing.
	Released time.Time

	// Security is what is said of how requests are authorized, as codes of
	// http://terminology.hl7.org/CodeSystem/restful-security-service. Default: nothing.
	Security []string
}

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; that the request is one of these
// is for the caller to know. It writes the answer, or else nothing and returns an [*Error]. The error wraps
// [ErrUnknown], [ErrIncomplete] or [ErrUnsupported] where another server may be able to answer; one with the
// status 502 or 504 says that a definition could not be fetched. An error of any other type means that the answer could not be written whole.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	o := h.begin(r)
	defer o.budget.rest()
	inputs, err := o.read(w, "valueSet")
	if err != nil {
		return err
	}
	var p parameters
	if err := p.read(inputs); err != nil {
		return err
	}
	o.fill(&p)
	x, err := fetching(o, o.library, func(l *Library) (*Expansion, []Missing, error) {
		x, err := o.expand(l, &p)
		return x, missingIn(err), err
	})
	if err != nil {
		return err
	}
	f, err := negotiate(r, p.given)
	if err != nil {
		return err
	}
	x.library.use(func() {
		writer := newExpansionWriter(x, p.get) // which may make a tree, and so takes the turn
		o.budget.rest()
		err = writer.respond(w, r, f)
	})
	return err
}

// serve answers an operation that returns one resource. It settles the format first, and writes nothing if the operation
// fails.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer func(o *operation, l *Library, inputs []input) ([]byte, error)) error {
	o := h.begin(r)
	defer o.budget.rest()
	inputs, err := o.read(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := fetching(o, o.library, func(l *Library) ([]byte, []Missing, error) {
		body, err := answer(o, l, inputs)
		return body, missingIn(err), err
	})
	if err != nil {
		return f.provisional(err)
	}
	o.budget.rest()
	return f.write(w, r, body)
}

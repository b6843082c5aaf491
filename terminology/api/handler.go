package api

import (
	"context"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Handler answers the operations of a terminology service over HTTP from a library (interface.md §4.2; R4 ValueSet
// operation expand).
type Handler struct {
	// Library has the definitions. Required, unless Current is set.
	Library *terminology.Library

	// Current replaces Library by that of a [Watch]. It is called once for each request. Default: none.
	Current func() *terminology.Library

	// Fetched fetches definitions that the library lacks. Default: none.
	Fetched *terminology.Fetched

	// Others says that other servers can be asked: if $validate-code or $translate says no for lack of definitions, the
	// answer is not written but returned, as [Error.Provisional] of an error that wraps [ErrIncomplete]. Default: false.
	Others bool

	// Limits bounds what one request may ask for.
	Limits expansion.Limits

	// MaxBody bounds the body of a request, in bytes. A larger one is refused with 413. Default: 16 MiB.
	MaxBody int64

	// MaxResources bounds the definitions in one request, as tx-resource. More are refused with 413. Default: 200.
	MaxResources int

	// MaxRemembered bounds the resources remembered by cache-id, in bytes of JSON; their libraries take several times as
	// much. When full, the least recently used are forgotten. Default: 16 MiB; negative: nothing is remembered.
	MaxRemembered int64

	// Statement completes the CapabilityStatement.
	Statement Statement

	// Turn waits until there is room for a costly request, which takes more than a few milliseconds, and returns what gives
	// the room back. If it fails, so does the request, with status 503 and an error that wraps [ErrBusy]. Default: there
	// is always room.
	Turn func(ctx context.Context) (leave func(), err error)

	// Principal names whom a request was authorized for, if the server around has removed its credentials: resources
	// remembered by cache-id are for one principal alone. Default: requests without credentials are of one principal.
	Principal func(ctx context.Context) string

	remembered resourceCache
}

// Defaults of the limits.
const (
	defaultMaxBody       = 16 << 20
	defaultMaxResources  = 200
	defaultMaxRemembered = 16 << 20
)

// Statement is what a CapabilityStatement says of the software and its security.
type Statement struct {
	// Version is software.version. Default: none.
	Version string

	// Released is software.releaseDate. Default: none.
	Released time.Time

	// Security is rest.security.service, as codes of http://terminology.hl7.org/CodeSystem/restful-security-service.
	// Default: none.
	Security []string
}

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has checked that the request is one of
// these. It writes the answer, or writes nothing and returns an [*Error], which wraps [ErrUnknown], [ErrIncomplete] or
// [ErrUnsupported] if another server may be able to answer; status 502 or 504 means that a definition could not be fetched.
// Any other error means that the answer was not written completely.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	o := h.begin(r)
	defer o.budget.Rest()
	inputs, err := o.read(w, "valueSet")
	if err != nil {
		return err
	}
	var p common
	if err := p.read(inputs); err != nil {
		return err
	}
	o.fill(&p)
	x, err := fetching(o, o.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.Missing, error) {
		x, err := o.expand(l, &p)
		return x, missingIn(err), err
	})
	if err != nil {
		return err
	}
	f, err := negotiate(r, p.Given)
	if err != nil {
		return err
	}
	x.Library.Use(func() {
		writer := expansion.NewWriter(x, p.get) // needs the turn, as it may make a tree
		o.budget.Rest()
		err = respond(writer, x.Len() > streamed, w, r, f)
	})
	return err
}

// serve answers an operation that returns one resource.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error)) error {
	o := h.begin(r)
	defer o.budget.Rest()
	inputs, err := o.read(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := fetching(o, o.library, func(l *terminology.Library) ([]byte, []outcome.Missing, error) {
		body, err := answer(o, l, inputs)
		return body, missingIn(err), err
	})
	if err != nil {
		return f.provisional(err)
	}
	o.budget.Rest()
	return f.write(w, r, body)
}

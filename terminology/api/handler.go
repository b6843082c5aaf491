package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
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

// Bounds of a request: its body, in bytes, and its parameters tx-resource.
const (
	maxBody      = 16 << 20
	maxResources = 200
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

// now returns the library to answer a request from.
func (h *Handler) now() *terminology.Library {
	l := h.Library
	if h.Current != nil {
		l = h.Current()
	}
	if h.Fetched != nil {
		l = h.Fetched.Over(l)
	}
	return l
}

// Expand answers [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has checked that the request is one of
// these. It writes the answer, or writes nothing and returns an [*Error], which wraps [ErrUnknown], [ErrIncomplete] or
// [ErrUnsupported] if another server may be able to answer; status 502 or 504 means that a definition could not be fetched.
// Any other error means that the answer was not written completely.
//
// The body of a POST is read and put back, so that another server can be asked the same.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	c := h.begin(r)
	defer c.Budget.Rest()
	inputs, err := c.read(w, "valueSet")
	if err != nil {
		return err
	}
	var p Parameters // not of Call.Parameters, which allocates
	if err := c.readParameters(&p, inputs); err != nil {
		return err
	}
	x, err := Fetch(c, c.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.Missing, error) {
		x, err := c.expand(l, &p)
		return x, MissingIn(err), err
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
		c.Budget.Rest()
		err = respond(writer, x.Len() > streamed, w, r, f)
	})
	return err
}

// serve answers an operation that returns one resource.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, answer Answer) error {
	c := h.begin(r)
	defer c.Budget.Rest()
	inputs, err := c.read(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := Fetch(c, c.library, func(l *terminology.Library) ([]byte, []outcome.Missing, error) {
		body, missed, err := answer(c, l, inputs)
		if err == nil && h.Others && len(missed) > 0 {
			err = provisional(body, missed)
		}
		return body, MissingIn(err), err
	})
	if err != nil {
		return f.provisional(err)
	}
	c.Budget.Rest()
	return f.write(w, r, body)
}

// provisional returns the error that holds an answer for which definitions were missing that other servers may have.
func provisional(body []byte, missed []outcome.Missing) error {
	e := outcome.Incomplete("not-found", "the answer rests on what is not here: %v", missed[0])
	e.Missing, e.Provisional = missed, &outcome.Provisional{Body: body}
	return e
}

// Operation is an operation of a terminology service other than $expand. A package below terminology/operation has one or more,
// registers them from init, and is never imported by the core.
type Operation struct {
	// Type is the type of the resources that the operation is called on, and Name its code: ValueSet and validate-code.
	Type, Name string

	// OnInstance allows calls on the instance level ([type]/[id]/$name). Default: type level only.
	OnInstance bool

	// IsExtension marks an operation that FHIR R4 does not define. The CapabilityStatement omits it. Default: false.
	IsExtension bool

	// Capability are the members of a TerminologyCapabilities that describe the operation, in JSON without braces. Default:
	// none.
	Capability string

	// Answer answers a request.
	Answer Answer
}

// Answer answers a request from a library, with a resource in JSON. missing are definitions that could change the answer:
// other servers that may have them are asked first. A failure is an [*outcome.Error].
type Answer func(c *Call, l *terminology.Library, inputs []parameters.Input) (body []byte, missing []outcome.Missing, err error)

var registered []Operation

// Register adds operations. Packages call it from init: importing a package enables its operations.
func Register(operations ...Operation) {
	registered = append(registered, operations...)
	slices.SortFunc(registered, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) })
}

// Registered returns the registered operations, ordered by type and name.
func Registered() []Operation { return slices.Clone(registered) }

// FindOperation returns a registered operation.
func FindOperation(kind, name string) (o Operation, ok bool) {
	i := slices.IndexFunc(registered, func(o Operation) bool { return o.Type == kind && o.Name == name })
	if i < 0 {
		return o, false
	}
	return registered[i], true
}

// Operation returns the handler of a registered operation. See [Handler.Expand] for what is written and returned.
func (h *Handler) Operation(o Operation) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error { return h.serve(w, r, o.Answer) }
}

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

// Handler serves the operations of a terminology service over HTTP from a library (interface.md §4.2; R4 ValueSet
// operation expand).
type Handler struct {
	// Library contains the definitions. Required unless CurrentLibrary is set.
	Library *terminology.Library

	// CurrentLibrary returns the library of a [terminology.Watch] instead. It is called once per request. Default: none.
	CurrentLibrary func() *terminology.Library

	// FetchedDefinitions fetches missing definitions. Default: none.
	FetchedDefinitions *terminology.FetchedDefinitions

	// HasOtherServers indicates that other servers can be called. If so, a negative $validate-code or $translate due to missing
	// definitions is returned as [outcome.Error.Provisional] of an error that wraps [outcome.ErrIncomplete]. Default: false.
	HasOtherServers bool

	// Limits are the maximum sizes of a response and its cost.
	Limits expansion.Limits

	// Statement contains members of the CapabilityStatement.
	Statement Statement

	// AcquireSlot acquires a slot for a costly request, which takes more than a few milliseconds, and returns the function that
	// releases it. If AcquireSlot returns an error, the request fails with status 503 and an error that wraps budget.ErrBusy. Default:
	// unlimited slots.
	AcquireSlot func(ctx context.Context) (release func(), err error)

	// Principal returns the principal of a request if the surrounding server removes its credentials. Resources cached by
	// cache-id belong to one principal. Default: requests without credentials share one principal.
	Principal func(ctx context.Context) string

	resourceCache resourceCache
}

// Limits of a request: body size in bytes, and number of tx-resource parameters.
const (
	maxBody      = 16 << 20
	maxResources = 200
)

// Statement contains the members of a CapabilityStatement about the software and its security.
type Statement struct {
	// Version is software.version. Default: none.
	Version string

	// Released is software.releaseDate. Default: none.
	Released time.Time

	// Security is rest.security.service, as codes of http://terminology.hl7.org/CodeSystem/restful-security-service.
	// Default: none.
	Security []string
}

// currentLibrary returns the current library.
func (h *Handler) currentLibrary() *terminology.Library {
	l := h.Library
	if h.CurrentLibrary != nil {
		l = h.CurrentLibrary()
	}
	if h.FetchedDefinitions != nil {
		l = h.FetchedDefinitions.Overlay(l)
	}
	return l
}

// Expand serves [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has matched the path. It either
// writes a response, or writes nothing and returns an [*outcome.Error]. The error wraps [outcome.ErrUnknown], [outcome.ErrIncomplete] or
// [outcome.ErrUnsupported] if another server may be able to serve the request; status 502 or 504 means that a definition could
// not be fetched. Any other error means that the response was written incompletely.
//
// The body of a POST is read and restored, so that the request can be forwarded.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	c := h.newCall(r)
	defer c.Budget.ReleaseSlot()
	inputs, err := c.readRequest(w, "valueSet")
	if err != nil {
		return err
	}
	var p Parameters // Call.Parameters would allocate
	if err := c.readParameters(&p, inputs); err != nil {
		return err
	}
	x, err := Fetch(c, c.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.Missing, error) {
		x, err := c.expand(l, &p)
		return x, MissingDefinitions(err), err
	})
	if err != nil {
		return err
	}
	f, err := negotiate(r, p.Parameters)
	if err != nil {
		return err
	}
	x.Definitions.Use(func() {
		writer := expansion.NewWriter(x, p.isGET) // needs the slot because it may build a tree
		c.Budget.ReleaseSlot()
		err = writeExpansion(writer, x.Len() > minStreamedEntries, w, r, f)
	})
	return err
}

// serve serves an operation that returns a resource.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, handle OperationFunc) error {
	c := h.newCall(r)
	defer c.Budget.ReleaseSlot()
	inputs, err := c.readRequest(w, "")
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	body, err := Fetch(c, c.library, func(l *terminology.Library) ([]byte, []outcome.Missing, error) {
		body, missing, err := handle(c, l, inputs)
		if err == nil && h.HasOtherServers && len(missing) > 0 {
			err = newProvisionalError(body, missing)
		}
		return body, MissingDefinitions(err), err
	})
	if err != nil {
		return f.encodeProvisional(err)
	}
	c.Budget.ReleaseSlot()
	return f.write(w, r, body)
}

// newProvisionalError returns an error with a response and its missing definitions, which other servers may have.
func newProvisionalError(body []byte, missing []outcome.Missing) error {
	e := outcome.NewIncomplete("not-found", "the response depends on missing definitions: %v", missing[0])
	e.Missing, e.Provisional = missing, &outcome.Provisional{Body: body}
	return e
}

// Operation is an operation of a terminology service other than $expand. Packages below terminology/operation contain
// operations and register them in init. The core never imports these packages.
type Operation struct {
	// Type is the resource type of the operation and Name its code, such as ValueSet and validate-code.
	Type, Name string

	// HasInstanceLevel enables instance-level calls ([type]/[id]/$name). Default: false, only type-level calls.
	HasInstanceLevel bool

	// IsExtension marks an operation that FHIR R4 does not define. The CapabilityStatement omits it. Default: false.
	IsExtension bool

	// Capability contains the members of TerminologyCapabilities for the operation, as JSON without braces. Default: none.
	Capability string

	// Handle performs the operation.
	Handle OperationFunc
}

// OperationFunc performs an operation with a library and returns a resource in JSON. missing are definitions that could change
// the result; other servers that may have them are called first. Errors are [*outcome.Error].
type OperationFunc func(c *Call, l *terminology.Library, inputs []parameters.Input) (body []byte, missing []outcome.Missing, err error)

var registeredOperations []Operation

// Register adds operations. Packages call it in init, so that importing a package enables its operations.
func Register(operations ...Operation) {
	registeredOperations = append(registeredOperations, operations...)
	slices.SortFunc(registeredOperations, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) })
}

// Operations returns the registered operations, sorted by type and name.
func Operations() []Operation { return slices.Clone(registeredOperations) }

// FindOperation returns a registered operation.
func FindOperation(kind, name string) (o Operation, ok bool) {
	i := slices.IndexFunc(registeredOperations, func(o Operation) bool { return o.Type == kind && o.Name == name })
	if i < 0 {
		return o, false
	}
	return registeredOperations[i], true
}

// Operation returns the HTTP handler of a registered operation. See [Handler.Expand] for responses and errors.
func (h *Handler) Operation(o Operation) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error { return h.serve(w, r, o.Handle) }
}

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

// Handler serves the operations of a terminology service over HTTP, based on a library (docs/evidence/interface.md §4.2; R4
// ValueSet/$expand).
type Handler struct {
	// Library contains the definitions. Required unless CurrentLibrary is set.
	Library *terminology.Library

	// CurrentLibrary replaces Library by that of a [terminology.Watch]. It is called once per request. Default: nil.
	CurrentLibrary func() *terminology.Library

	// FetchedDefinitions fetches missing definitions on demand. Default: nil, definitions are not fetched.
	FetchedDefinitions *terminology.FetchedDefinitions

	// HasOtherServers enables provisional results: a negative $validate-code or $translate due to missing definitions is then
	// returned as [outcome.Error.Provisional] of an error that wraps [outcome.ErrIncomplete]. Default: false.
	HasOtherServers bool

	// Limits bounds the size and the cost of a response.
	Limits expansion.Limits

	// Statement contains members of the CapabilityStatement that describe the deployment.
	Statement Statement

	// AcquireSlot acquires a slot for a request that takes more than a few milliseconds and returns the function that releases
	// it. If it returns an error, the request fails with status 503 and an error that wraps budget.ErrBusy. Default: unlimited
	// slots.
	AcquireSlot func(ctx context.Context) (release func(), err error)

	// Principal returns the principal of a request. Set it if the surrounding server removes credentials from requests:
	// resources cached by cache-id belong to one principal. Default: all requests without credentials share one principal.
	Principal func(ctx context.Context) string

	resourceCache resourceCache
}

// Limits of a request: body size in bytes and number of tx-resource parameters.
const (
	maxBody      = 16 << 20
	maxResources = 200
)

// Statement contains the members of a CapabilityStatement about the software and its security.
type Statement struct {
	// Version is CapabilityStatement.software.version. Default: none.
	Version string

	// Released is CapabilityStatement.software.releaseDate. Default: none.
	Released time.Time

	// Security is CapabilityStatement.rest.security.service, as codes of
	// http://terminology.hl7.org/CodeSystem/restful-security-service. Default: none.
	Security []string
}

// currentLibrary returns the library for a new request.
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

// Expand serves [base]/ValueSet/$expand and [base]/ValueSet/{id}/$expand; the caller has matched the path. It either writes a
// response, or writes nothing and returns an [*outcome.Error]. The error wraps [outcome.ErrUnknown], [outcome.ErrIncomplete] or
// [outcome.ErrUnsupported] if another server may be able to serve the request. Status 502 or 504 means that a definition could
// not be fetched. Any other type of error means that only part of the response was written.
//
// Expand restores the body of a POST after reading it, so that the request can be forwarded.
func (h *Handler) Expand(w http.ResponseWriter, r *http.Request) error {
	c := h.newCall(r)
	defer c.Budget.ReleaseSlot()
	inputs, err := c.readRequest(w, "valueSet")
	if err != nil {
		return err
	}
	var p Parameters // avoids the allocation in Call.Parameters
	if err := c.readParameters(&p, inputs); err != nil {
		return err
	}
	x, err := Fetch(c, c.library, func(l *terminology.Library) (*expansion.Expansion, []outcome.MissingDefinition, error) {
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
		writer := expansion.NewWriter(x, p.isGET) // before ReleaseSlot: it may build a tree
		c.Budget.ReleaseSlot()
		err = writeExpansion(writer, x.Len() > minStreamedEntries, w, r, f)
	})
	return err
}

// serve serves an operation that returns a resource, for example $lookup.
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
	body, err := Fetch(c, c.library, func(l *terminology.Library) ([]byte, []outcome.MissingDefinition, error) {
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

// newProvisionalError returns an error with a provisional response and the missing definitions that it depends on.
func newProvisionalError(body []byte, missing []outcome.MissingDefinition) error {
	e := outcome.NewIncomplete("not-found", "the response depends on missing definitions: %v", missing[0])
	e.Missing, e.Provisional = missing, &outcome.Provisional{Body: body}
	return e
}

// Operation is an operation of a terminology service other than $expand. The packages below terminology/operation implement
// operations and register them in init. The core never imports these packages.
type Operation struct {
	// Type is the resource type of the operation, such as ValueSet, and Name its code, such as validate-code.
	Type, Name string

	// HasInstanceLevel enables instance-level calls ([type]/[id]/$name). Default: false, only type-level calls.
	HasInstanceLevel bool

	// IsExtension marks an operation that FHIR R4 does not define. The CapabilityStatement omits it. Default: false.
	IsExtension bool

	// Definition is the canonical of the OperationDefinition. Default: that of FHIR R4.
	Definition string

	// Capability contains the members of TerminologyCapabilities for the operation, as JSON without braces. Default: none.
	Capability string

	// Handle performs the operation. Required.
	Handle OperationFunc
}

// OperationFunc performs an operation with a library and returns a resource in JSON. missing lists definitions that could
// change the result; the caller may try other servers that have them first. Errors are [*outcome.Error].
type OperationFunc func(c *Call, l *terminology.Library, inputs []parameters.Input) (body []byte, missing []outcome.MissingDefinition, err error)

var registeredOperations []Operation

// Register adds operations. Packages call it in init, so that importing a package is enough to enable its operations.
func Register(operations ...Operation) {
	registeredOperations = append(registeredOperations, operations...)
	slices.SortFunc(registeredOperations, func(a, b Operation) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name)) })
}

// Operations returns the registered operations, sorted by type and name.
func Operations() []Operation { return slices.Clone(registeredOperations) }

// FindOperation returns the registered operation with the given resource type and name.
func FindOperation(kind, name string) (o Operation, ok bool) {
	i := slices.IndexFunc(registeredOperations, func(o Operation) bool { return o.Type == kind && o.Name == name })
	if i < 0 {
		return o, false
	}
	return registeredOperations[i], true
}

// Operation returns the HTTP handler of a registered operation. For responses and errors, see [Handler.Expand].
func (h *Handler) Operation(o Operation) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error { return h.serve(w, r, o.Handle) }
}

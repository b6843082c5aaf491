package api

import (
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
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

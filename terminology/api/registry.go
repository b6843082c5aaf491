package api

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

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

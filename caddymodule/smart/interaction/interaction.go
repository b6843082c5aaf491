package interaction

import "github.com/caddy-fhir/caddy-fhir/caddymodule/smart"

// Reference names a resource on the server.
type Reference struct {
	// Type is a resource type.
	Type string
	// ID is the logical id.
	ID string
}

// String is the relative reference, such as Patient/1.
func (r Reference) String() string { return r.Type + "/" + r.ID }

// Interaction is one request of FHIR's REST API. [Parse] makes it.
type Interaction struct {
	// Kind is what the request does.
	Kind Kind
	// Type is the resource type, if the path names one. Of a [CompartmentSearch] it is the type to be found, "*" for all.
	Type string
	// ID is the logical id, if the path names one and it is not that of a compartment.
	ID string
	// VersionID is the version that a [VRead] asks for.
	VersionID string
	// Compartment is where a [CompartmentSearch] looks.
	Compartment Reference
	// Operation is the name of an [Operation] with its dollar sign, such as $everything.
	Operation string
	// Parameters are those of the query, decoded and in their order, then those of the form of a search, or the criteria
	// of a [ConditionalCreate].
	Parameters []smart.Parameter
	// Async asks for an asynchronous answer (R4 async.html).
	Async bool
}

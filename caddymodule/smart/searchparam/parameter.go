package searchparam

import "github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"

// Kind is the type of a search parameter.
type Kind uint8

// The types of search parameters.
const (
	Number Kind = iota
	Date
	String
	Token
	Reference
	Composite
	Quantity
	URI
	Special
)

var kindNames = [...]string{"number", "date", "string", "token", "reference", "composite", "quantity", "uri", "special"}

// String returns the kind as FHIR writes it.
func (k Kind) String() string { return kindNames[k] }

// Parameter is a search parameter of one resource type.
type Parameter struct {
	// Name is what it is called in a search, such as birthdate.
	Name string
	// Kind says what is compared, and how.
	Kind Kind
	// Paths lead to the elements that are searched. None means that the parameter cannot be judged here: it is a
	// composite, or its FHIRPath is more than paths.
	Paths []resource.Path
	// Targets are the types of resources that a reference may be to; none means any.
	Targets []string
	// Own says that a site has defined it, and not R4: what the FHIR server understands by it beyond that is not known.
	Own bool
}

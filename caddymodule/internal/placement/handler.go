package placement

// A Handler is a handler of ours whose place in a site is checked: one that answers some requests below the FHIR base.
type Handler interface {
	// Placed says what it is.
	Placed() Placed
}

// Placed is a handler where it stands.
type Placed struct {
	Directive string // of the Caddyfile
	Source    string // the Caddyfile and the line; empty: not known
	FHIRBase  string // the path of the FHIR API
}

// A Guard is a handler that asks for a token.
type Guard interface {
	Handler

	// WithoutURL returns an error if the guard needs the URL of the API from the address of its site.
	WithoutURL() error
}

// An Authorizer is a handler that gives tokens.
type Authorizer interface {
	Handler

	// Issuer returns where apps are sent to get one.
	Issuer() string
}

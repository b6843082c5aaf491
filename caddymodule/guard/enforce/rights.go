package enforce

import "github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"

type (
	// Holder is who holds a token.
	Holder = access.Holder

	// Rights are what a token may do.
	Rights = access.Rights

	// Shared are the rules for types outside of compartments.
	Shared = access.Shared
)

// NewRights returns the rights of a token's holder. Scopes that are malformed, that lack their context or whose
// constraint cannot be checked grant nothing.
func NewRights(h Holder, shared Shared) *Rights { return access.New(h, shared) }

// Terminology are the grants of any valid token: to read and search definitions, which [Rights.Add] adds.
func Terminology() []access.Grant { return access.Terminology() }

// NewShared returns the default rules, changed by a site's own.
func NewShared(own Shared) Shared { return access.NewShared(own) }

// SharedRule returns the rule with a name; nil if there is none.
func SharedRule(name string) *access.Rule { return access.RuleNamed(name) }

// SharedRules are the names of the rules that a site can give to types.
func SharedRules() []string { return access.RuleNames() }

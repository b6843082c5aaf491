package enforce

import (
	"errors"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Decision is what was decided about a request, and why.
type Decision struct {
	// Interaction is what was asked for. Its Kind is 0 if it is no interaction of FHIR's.
	Interaction interaction.Interaction
	// Changes says that the interaction may change something.
	Changes bool
	// Err is why it was refused, or why it failed; nil if it was answered.
	Err error

	rights *access.Rights
}

// Scope is the scope that allows it: the first, if several do. Empty if none does, or none is needed.
func (d Decision) Scope() string { return allowing(d.rights, d.Interaction) }

// Refused reports whether the request was refused, rather than answered or not possible at present.
func (d Decision) Refused() bool {
	refusal, ok := errors.AsType[*guard.Error](d.Err)
	return ok && refusal.Status < 500
}

// allowing is the scope that allows an interaction.
func allowing(rights *access.Rights, i interaction.Interaction) string {
	permission := i.Permission()
	if permission == 0 {
		return ""
	}
	for _, g := range rights.For(i.Type, permission) {
		return g.Scope
	}
	return ""
}

package access

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Covers reports whether a grant is about a resource as it stands: in its context, matching its constraint, and with
// nothing contained that names another patient.
func (r *Rights) Covers(g Grant, res resource.Resource) Verdict {
	switch {
	case g.ByRule, g.Type != smart.AnyType && g.Type != res.Type:
		return outside
	case g.Only != (interaction.Reference{}):
		return byItself(g.Only == interaction.Reference{Type: res.Type, ID: res.ID})
	case !r.matches(g.Constraint, res):
		return outside
	case g.Patient == "":
		return covered
	case !containsOnly(res, g.Patient):
		return outside
	}
	return r.Shared.inside(res, g.Patient)
}

// CoversNew is Covers for a resource that a client writes, before and after. Under a grant that is bound to a patient it
// must be that patient's and no other's: what is written into one record must not show in another's.
func (r *Rights) CoversNew(g Grant, res resource.Resource) Verdict {
	read := r.Covers(g, res)
	if g.Patient == "" || g.Only != (interaction.Reference{}) {
		return read
	}
	return r.Shared.written(res, g.Patient, read)
}

// matches reports whether the resource matches all of a constraint.
func (r *Rights) matches(constraint []smart.Parameter, res resource.Resource) bool {
	return !slices.ContainsFunc(constraint, func(p smart.Parameter) bool { return !r.Matches(p, res) })
}

// Matches reports whether the resource is one that a search with the parameter would find. What cannot be evaluated
// matches nothing.
func (r *Rights) Matches(p smart.Parameter, res resource.Resource) bool {
	return matches(r.parameters, p, res)
}

// FoundBy reports whether a search with a parameter of a [Confinement], or of a grant's constraint, finds a resource.
func (r *Rights) FoundBy(p smart.Parameter, res resource.Resource) bool {
	if p.Name == missingPatient {
		return !OfPatients(res)
	}
	return r.Matches(p, res)
}

package access

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Verdict says whether a grant covers a resource.
type Verdict struct {
	// Covered says that it does, if all of Needed are covered too.
	Covered bool
	// Needed are other resources on which it depends. Empty if the resource says all by itself.
	Needed []interaction.Reference
}

var (
	covered  = Verdict{Covered: true}
	outside  = Verdict{}
	byItself = func(ok bool) Verdict { return Verdict{Covered: ok} }
)

// and is the verdict where something else must hold, too.
func (v Verdict) and(ok bool) Verdict {
	if !ok {
		return outside
	}
	return v
}

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

// containsOnly reports whether nothing contained in the resource names another patient. What names none belongs to
// what contains it.
func containsOnly(res resource.Resource, patient string) bool {
	if _, ok := res.Member("contained"); !ok {
		return true
	}
	for text := range res.Contained() {
		contained, err := resource.Parse(text)
		if err != nil {
			return false
		}
		for id := range compartment.Patients(contained) {
			if id != patient && contained.Type != "Patient" {
				return false
			}
		}
	}
	return true
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

func matches(parameters searchparam.Set, p smart.Parameter, res resource.Resource) bool {
	parameter, ok := parameters.Lookup(res.Type, p.Name)
	if !ok {
		return false
	}
	ok, err := parameter.Matches(res, p.Value)
	return ok && err == nil
}

// evaluable reports whether a grant's constraint can be checked on a resource. For a grant over all types that is told
// of each resource.
func evaluable(g Grant, parameters searchparam.Set) bool {
	if g.Type == smart.AnyType {
		return true
	}
	return !slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool {
		parameter, ok := parameters.Lookup(g.Type, p.Name)
		return !ok || len(parameter.Paths) == 0
	})
}

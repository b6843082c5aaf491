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
	if g.Patient == "" || g.Only != (interaction.Reference{}) {
		return r.Covers(g, res)
	}
	_, member := compartment.Patient(res.Type)
	switch rule := r.Shared[res.Type]; {
	case rule == Everyone:
		return outside
	case rule == Unassigned && !OfPatients(res):
		return outside
	case rule == OwnPatient:
		return r.Covers(g, res)
	case rule == SecurityContext:
		return r.Shared.ownAlone(r.Covers(g, res))
	case rule == About && r.Covers(g, res).Covered:
		return r.Shared.ownAlone(r.Shared.about(res, g.Patient, true))
	case member && res.Type != "Patient" && !namesOnly(res, g.Patient):
		return outside
	}
	return r.Covers(g, res)
}

// ownAlone is a verdict on what a client writes, judged by what that is about: nothing of it may be what others see too.
func (s Shared) ownAlone(v Verdict) Verdict {
	if slices.ContainsFunc(v.Needed, func(of interaction.Reference) bool { return s[of.Type] == Everyone || s[of.Type] == Unassigned }) {
		return outside
	}
	return v
}

// namesOnly reports whether a resource's membership parameters name the patient and no other.
func namesOnly(res resource.Resource, patient string) bool {
	named := 0
	for id := range compartment.Patients(res) {
		if id != patient {
			return false
		}
		named++
	}
	return named > 0
}

// inside reports whether a resource is the patient's, or one that every patient's records need.
func (s Shared) inside(res resource.Resource, patient string) Verdict {
	switch s[res.Type] {
	case Closed:
		return outside
	case Everyone:
		return covered
	case Unassigned:
		own := smart.Parameter{Name: "patient", Value: "Patient/" + patient}
		return byItself(matches(searchparam.Set{}, own, res) || !OfPatients(res)) // R4's, whatever a site defines
	case SecurityContext:
		return dependent(res, patient, "securityContext")
	case About:
		return s.about(res, patient, false)
	case OwnPatient:
		return byItself(isOfPatient(res, patient))
	case Alone:
		return byItself(compartment.InPatient(res, patient) && namesOnly(res, patient))
	}
	return byItself(compartment.InPatient(res, patient))
}

// OfPatients reports whether a resource outside of compartments says whose it is.
func OfPatients(res resource.Resource) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	for _, path := range parameter.Paths {
		path.Target = ""
		for range res.Values(path) {
			return true
		}
	}
	return len(parameter.Paths) == 0
}

// isOfPatient reports whether a resource's search parameter patient names the patient and no other.
func isOfPatient(res resource.Resource, patient string) bool {
	parameter, _ := searchparam.Lookup(res.Type, "patient")
	named := false
	for _, path := range parameter.Paths {
		path.Target = ""
		for value := range res.Values(path) {
			to, _, ok := res.Refers(value)
			if !ok || to.Type != "Patient" || to.Base != "" || to.ID != patient {
				return false
			}
			named = true
		}
	}
	return named
}

// maxNeeded bounds what one resource may depend on.
const maxNeeded = 20

// about judges a resource by all that it is about: one that names another's too is nobody's, since reading it would tell
// of both.
func (s Shared) about(res resource.Resource, patient string, writing bool) Verdict {
	switch res.Type {
	case "Provenance":
		return dependent(res, patient, "target")
	case "Bundle":
		return s.inDocument(res, patient, writing)
	}
	return byItself(compartment.InPatient(res, patient))
}

// dependent judges a resource by the references in one element: each must be the patient, or be covered too.
func dependent(res resource.Resource, patient, element string) Verdict {
	v := covered
	n := 0
	for value := range res.Values(resource.Path{Elements: []string{element}}) {
		to, _, ok := res.Refers(value)
		if n++; n > maxNeeded || !ok || to.Type == "" || to.Base != "" {
			return outside
		}
		if to.Type != "Patient" || to.ID != patient {
			v.Needed = append(v.Needed, interaction.Reference{Type: to.Type, ID: to.ID})
		}
	}
	if n == 0 {
		return outside
	}
	return v
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

package access

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Covers reports whether a grant is about a resource as it stands: in its context, matching its constraint, and with
// nothing contained that names another patient.
func (r *Rights) Covers(g Grant, res resource.Resource) Verdict {
	switch {
	case g.ByRule, g.Type != smart.AnyType && g.Type != res.Type:
		return outside
	case g.Only != (interaction.Reference{}):
		return byItself(g.Only == interaction.Reference{Type: res.Type, ID: res.ID})
	case slices.ContainsFunc(g.Constraint, func(p smart.Parameter) bool { return !r.Matches(p, res) }):
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

func matches(parameters searchparam.Set, p smart.Parameter, res resource.Resource) bool {
	parameter, ok := parameters.Lookup(res.Type, p.Name)
	if !ok {
		return false
	}
	ok, err := parameter.Matches(res, p.Value)
	return ok && err == nil
}

// maxNeeded bounds what one resource may depend on.
const maxNeeded = 20

// What rules say of a resource that is read.

func (s Shared) all(resource.Resource, string) Verdict { return covered }

func (s Shared) ownOrUnassigned(res resource.Resource, patient string) Verdict {
	own := smart.Parameter{Name: "patient", Value: "Patient/" + patient}
	return byItself(matches(searchparam.Set{}, own, res) || !OfPatients(res)) // R4's, whatever a site defines
}

func (s Shared) inContext(res resource.Resource, patient string) Verdict {
	return dependent(res, patient, "securityContext")
}

// about judges a resource by all that it is about: one that names another's too is nobody's, since reading it would tell
// of both.
func (s Shared) about(res resource.Resource, patient string) Verdict {
	return s.aboutAll(res, patient, false)
}

func (s Shared) aloneIn(res resource.Resource, patient string) Verdict {
	return byItself(compartment.InPatient(res, patient) && namesOnly(res, patient))
}

func (s Shared) ofPatient(res resource.Resource, patient string) Verdict {
	return byItself(isOfPatient(res, patient))
}

func (s Shared) inCompartment(res resource.Resource, patient string) Verdict {
	return byItself(compartment.InPatient(res, patient))
}

// What rules say of a resource that a client writes, and may read.

func (s Shared) asRead(_ resource.Resource, _ string, read Verdict) Verdict { return read }

// assigned is for what must be of a patient, and of no other.
func (s Shared) assigned(res resource.Resource, patient string, read Verdict) Verdict {
	return read.and(OfPatients(res) && (!isMember(res.Type) || namesOnly(res, patient)))
}

// ofOwn is for what depends on others: nothing of these may be what others see too.
func (s Shared) ofOwn(_ resource.Resource, _ string, read Verdict) Verdict {
	return read.and(!slices.ContainsFunc(read.Needed, func(of interaction.Reference) bool { return !s.IsOwn(of.Type) }))
}

func (s Shared) aboutOwn(res resource.Resource, patient string, _ Verdict) Verdict {
	return s.ofOwn(res, patient, s.aboutAll(res, patient, true))
}

func (s Shared) namingNoOther(res resource.Resource, patient string, read Verdict) Verdict {
	return read.and(namesOnly(res, patient))
}

func (s Shared) aboutAll(res resource.Resource, patient string, writing bool) Verdict {
	switch res.Type {
	case "Provenance":
		return dependent(res, patient, "target")
	case "Bundle":
		return s.inDocument(res, patient, writing)
	}
	v := s.inCompartment(res, patient)
	if writing {
		return s.namingNoOther(res, patient, v)
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

// isMember reports whether resources of a type are in compartments of patients.
func isMember(resourceType string) bool {
	_, ok := compartment.Patient(resourceType)
	return ok
}

package access

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

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

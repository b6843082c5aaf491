package access

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Search is a search of a client's for a type, under a grant that is bound to a patient.
type Search struct {
	// Type is the resource type.
	Type string
	// Patient is the id of the grant's patient.
	Patient string
	// Asked are the client's parameters.
	Asked []smart.Parameter
	// InCompartment says that the FHIR server can search in the compartment of a patient.
	InCompartment bool
}

// Confinement is what comes on top of the client's parameters, so that a search finds what a grant covers.
type Confinement struct {
	// InCompartment says that it is a search in the patient's compartment.
	InCompartment bool
	// IsOwn says that all that is covered of the type is the patient's own, and nobody else's.
	IsOwn bool
	// Parameters are further parameters.
	Parameters []smart.Parameter
}

// missingPatient finds what is of no patient.
const missingPatient = "patient:missing"

// by is a confinement by one parameter.
func by(name, value string) Confinement {
	return Confinement{Parameters: []smart.Parameter{{Name: name, Value: value}}}
}

// unconfined are searches that need no confinement.
func unconfined(Search) []Confinement { return []Confinement{{}} }

// byPatient confines by the search parameter patient.
func byPatient(q Search) []Confinement { return []Confinement{by("patient", "Patient/"+q.Patient)} }

// byPatientOrNone confines to what is the patient's or nobody's.
func byPatientOrNone(q Search) []Confinement {
	if slices.ContainsFunc(q.Asked, func(p smart.Parameter) bool {
		return p.Name == "patient" && (p.Value == "Patient/"+q.Patient || p.Value == q.Patient)
	}) {
		return unconfined(q)
	}
	return append(byPatient(q), by(missingPatient, "true"))
}

// byCompartment confines to the patient's compartment: by the FHIR server's own search of it where there is one, else by
// one search for each parameter of membership.
func byCompartment(q Search) []Confinement {
	if q.Type == "Patient" {
		return []Confinement{by("_id", q.Patient)}
	}
	names, ok := compartment.Patient(q.Type)
	switch {
	case !ok:
		return nil
	case slices.ContainsFunc(q.Asked, q.isOf):
		return unconfined(q)
	case q.InCompartment:
		return []Confinement{{InCompartment: true}}
	}
	var all []Confinement
	for _, name := range names {
		all = append(all, by(name, "Patient/"+q.Patient))
	}
	return all
}

// Criteria are search parameters that find a resource only as long as a grant covers it: those of the grant's constraint,
// and of its patient. Empty if there are none, or if they do not find the resource now: a policy may allow what no grant
// covers.
func (r *Rights) Criteria(g Grant, res resource.Resource) []smart.Parameter {
	finds := func(p smart.Parameter) bool { return r.FoundBy(p, res) }
	criteria := slices.Clone(g.Constraint)
	if g.Patient != "" {
		for _, c := range r.Shared.Confine(Search{Type: res.Type, Patient: g.Patient}) {
			if !slices.ContainsFunc(c.Parameters, func(p smart.Parameter) bool { return !finds(p) }) {
				criteria = append(criteria, c.Parameters...)
			}
		}
		if len(criteria) == len(g.Constraint) {
			return nil
		}
	}
	if slices.ContainsFunc(criteria, func(p smart.Parameter) bool { return !finds(p) }) {
		return nil
	}
	return criteria
}

// isOf reports whether all that a parameter of the client's finds is in the compartment of the patient, such as
// patient=Patient/a, so that nothing more need confine the search.
func (q Search) isOf(p smart.Parameter) bool {
	isID := p.Value == q.Patient
	if !isID && p.Value != "Patient/"+q.Patient {
		return false
	}
	name, modifier, _ := strings.Cut(p.Name, ":")
	by, ok := searchparam.Lookup(q.Type, name)
	if !ok || modifier != "" && modifier != "Patient" || !compartment.IsMembership(q.Type, by) {
		return false
	}
	return !isID || modifier != "" || isToPatients(by)
}

// isToPatients reports whether a parameter is about patients alone, so that an id is that of one. R4's elements with the
// name patient are, whatever the parameter's targets.
func isToPatients(by searchparam.Parameter) bool {
	return !slices.ContainsFunc(by.Paths, func(path resource.Path) bool {
		return path.Target != "Patient" && path.Elements[len(path.Elements)-1] != "patient" && !slices.Equal(by.Targets, []string{"Patient"})
	})
}

package operation

import (
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// confined confines an operation that picks the latest of what it finds to the patient of a grant: among several
// patients' records, or among records that a constraint hides, what is missing would tell of what was picked instead.
// Found is false if the client asks for another patient, for whom nothing is found.
func (j *judgedCall) confined(parameters []smart.Parameter, i interaction.Interaction, write func(id string) string) (_ []smart.Parameter, found bool, err error) {
	patients := patientsOf(j.x.Judge.Rights().For(i.Type, j.op.Permission))
	if len(patients) == 0 {
		return nil, false, message.Forbidden(message.ErrOracle, "%s takes a scope without a constraint.", j.op.Name).
			Lifted(j.x.Judge.Rights().Lacking(i.Type, j.op.Permission, false))
	}
	var rest, named []smart.Parameter
	for _, p := range parameters {
		if p.Name == "patient" || p.Name == "subject" {
			named = append(named, p)
		} else {
			rest = append(rest, p)
		}
	}
	if len(named) == 0 && len(patients) > 1 {
		return nil, false, message.Invalid(errParameters, "Name the patient: the scopes are about several.")
	}
	patient := patients[0]
	for n, p := range named {
		id := patientID(p.Value)
		if n > 0 && id != patient || !slices.Contains(patients, id) {
			return nil, false, nil
		}
		patient = id
	}
	return append(rest, smart.Parameter{Name: "patient", Value: write(patient)}), true, nil
}

// patientsOf are the patients to whom grants without a constraint are bound.
func patientsOf(grants []access.Grant) []string {
	var patients []string
	for _, g := range grants {
		if g.Patient != "" && len(g.Constraint) == 0 && !slices.Contains(patients, g.Patient) {
			patients = append(patients, g.Patient)
		}
	}
	return patients
}

// isOverAll reports whether a grant is about all types, without a constraint.
func isOverAll(g access.Grant) bool {
	return g.Type == smart.AnyType && !g.ByRule && len(g.Constraint) == 0
}

// patientID is the id in the value of a patient parameter: Patient/id, or the id alone.
func patientID(value string) string { return strings.TrimPrefix(value, "Patient/") }

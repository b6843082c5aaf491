package e2e

import "github.com/caddy-fhir/caddy-fhir/e2e/guardattack"

// guardPrincipal is a token holder with the grants that the token should have.
type guardPrincipal struct {
	name   string
	holder guardHolder
	grants []guardGrant
}

const (
	laboratory  = "http://terminology.hl7.org/CodeSystem/observation-category|laboratory"
	vitalSigns  = "http://terminology.hl7.org/CodeSystem/observation-category|vital-signs"
	problemList = "http://terminology.hl7.org/CodeSystem/condition-category|problem-list-item"
)

// readers returns a principal for each kind of read-only scope. Patient scopes are for w's first patient.
func readers(w *guardattack.World) []guardPrincipal {
	first := w.Patients[0]
	id := w.Find(first, "Patient.self").ID
	patient := func(name, scope string, grants ...guardGrant) guardPrincipal {
		for i := range grants {
			grants[i].patient = id
		}
		return guardPrincipal{name, guardHolder{scope: scope, patient: id}, grants}
	}
	all := guardGrant{permissions: "rs"}
	of := func(resourceType, permissions, constraint string) guardGrant {
		return guardGrant{types: []string{resourceType}, permissions: permissions, constraint: constraint}
	}
	within := all
	within.patient = id
	mother := w.Find(first, "RelatedPerson.mother").Reference()
	doctor := w.Find(first, "Practitioner.doctor").Reference()
	return []guardPrincipal{
		patient("all", "patient/*.rs", all),
		patient("all of v1", "patient/*.read", all),
		patient("one type", "patient/Observation.rs", of("Observation", "rs", "")),
		patient("read alone", "patient/*.r", guardGrant{permissions: "r"}),
		patient("search alone", "patient/Observation.s", of("Observation", "s", "")),
		patient("some types", "patient/Patient.rs patient/Observation.rs patient/Encounter.rs patient/Practitioner.r",
			of("Patient", "rs", ""), of("Observation", "rs", ""), of("Encounter", "rs", ""), of("Practitioner", "r", "")),
		patient("one category", "patient/Observation.rs?category="+laboratory, of("Observation", "rs", queryOf("category", laboratory))),
		patient("union", "patient/Observation.rs?category="+laboratory+" patient/Observation.rs?category="+vitalSigns+" patient/Condition.rs?category="+problemList,
			of("Observation", "rs", queryOf("category", laboratory)), of("Observation", "rs", queryOf("category", vitalSigns)),
			of("Condition", "rs", queryOf("category", problemList))),
		patient("union of parameters", "patient/Observation.rs?category="+laboratory+" patient/Observation.rs?status=amended patient/*.r?_id=none",
			of("Observation", "rs", queryOf("category", laboratory)), of("Observation", "rs", "status=amended")),
		{"user who is the patient", guardHolder{"user/*.rs", "", "Patient/" + id}, []guardGrant{within}},
		{"user who is the mother", guardHolder{"openid fhirUser user/*.rs", "", mother}, []guardGrant{within, {only: mother, permissions: "r"}}},
		{"fhirUser alone", guardHolder{"openid fhirUser", "", "Patient/" + id}, []guardGrant{{only: "Patient/" + id, permissions: "r"}}},
		{"openid alone", guardHolder{"openid", id, ""}, nil},
		{"patient scopes without a patient", guardHolder{"patient/*.rs", "", doctor}, nil},
		{"malformed", guardHolder{"patient/Observation.sr patient/observation.rs patient/Observation.rs?code:in=x patient/*.rs?_include=Observation:subject Patient/*.rs", id, ""}, nil},
		{
			"limited system", guardHolder{"system/Observation.rs?status=amended system/Organization.rs", "", ""},
			[]guardGrant{of("Observation", "rs", "status=amended"), of("Organization", "rs", "")},
		},
		{
			"practitioner with a patient", guardHolder{"user/Observation.rs?category=" + vitalSigns + " patient/Condition.rs", id, doctor},
			[]guardGrant{of("Observation", "rs", queryOf("category", vitalSigns)), {types: []string{"Condition"}, permissions: "rs", patient: id}},
		},
	}
}

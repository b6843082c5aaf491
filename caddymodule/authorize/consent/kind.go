package consent

import (
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// kind is a kind of data that people know by one name.
type kind struct {
	name  string // of the type, if it is one
	types []string
}

// kinds are what a scope for all types can be limited to. What is in none of them is given
// only with all.
var kinds = []kind{
	{"personal", []string{"Patient", "RelatedPerson"}},
	{"AllergyIntolerance", nil},
	{"Condition", nil},
	{"medicines", []string{"MedicationRequest", "MedicationDispense", "MedicationStatement", "MedicationAdministration", "Medication"}},
	{"Observation", nil},
	{"reports", []string{"DiagnosticReport", "ImagingStudy", "Specimen"}},
	{"Immunization", nil},
	{"procedures", []string{"Procedure", "ServiceRequest"}},
	{"visits", []string{"Encounter", "Appointment"}},
	{"plans", []string{"CarePlan", "Goal", "CareTeam"}},
	{"documents", []string{"DocumentReference", "Composition", "Binary"}},
	{"Device", nil},
	{"FamilyMemberHistory", nil},
	{"QuestionnaireResponse", nil},
	{"insurance", []string{"Coverage", "Claim", "ExplanationOfBenefit"}},
	{"providers", []string{"Practitioner", "PractitionerRole", "Organization", "Location"}},
	{"Provenance", nil},
}

const (
	conditionCategory   = "http://terminology.hl7.org/CodeSystem/condition-category|"
	observationCategory = "http://terminology.hl7.org/CodeSystem/observation-category|"
	usCore              = "http://hl7.org/fhir/us/core/CodeSystem/"
)

// category is a code that resources of a type are searched by.
type category struct{ code, token string }

// categories are those of US Core that people must be able to choose (45 CFR 170.315(g)(10)).
var categories = map[string][]category{
	"Condition": {
		{"problem-list-item", conditionCategory + "problem-list-item"},
		{"health-concern", usCore + "condition-category|health-concern"},
		{"encounter-diagnosis", conditionCategory + "encounter-diagnosis"},
	},
	"Observation": {
		{"laboratory", observationCategory + "laboratory"},
		{"vital-signs", observationCategory + "vital-signs"},
		{"social-history", observationCategory + "social-history"},
		{"survey", observationCategory + "survey"},
		{"sdoh", usCore + "us-core-category|sdoh"},
		{"clinical-test", usCore + "us-core-observation-category|clinical-test"},
	},
}

// parts are what a scope can be limited to. One that is already limited has none: to search by
// both would be a scope that nobody knows.
func parts(name string, scope smart.ResourceScope) []Choice {
	switch {
	case scope.Query != "":
		return nil
	case scope.Type == smart.AnyType:
		return partsByKind(name, scope)
	}
	return partsByCategory(name, scope)
}

func partsByKind(name string, scope smart.ResourceScope) (parts []Choice) {
	for _, k := range kinds {
		part := Choice{Name: name + " " + k.name}
		types := k.types
		if types == nil {
			types = []string{k.name}
		}
		for _, scope.Type = range types {
			part.scopes = append(part.scopes, scope)
		}
		if len(types) == 1 {
			part.Parts = partsByCategory(part.Name, scope)
		}
		parts = append(parts, part)
	}
	return parts
}

func partsByCategory(name string, scope smart.ResourceScope) (parts []Choice) {
	scope.V1 = false // SMART 1 has no queries
	for _, c := range categories[scope.Type] {
		scope.Query = "category=" + c.token
		parts = append(parts, Choice{Name: name + " " + c.code, scopes: []smart.ResourceScope{scope}})
	}
	return parts
}

// CategoryOf returns the code of the category that a scope is limited to; "" without one that
// a person can choose.
func CategoryOf(scope smart.ResourceScope) string {
	constraint := scope.Constraint()
	if len(constraint) != 1 || constraint[0].Name != "category" {
		return ""
	}
	for _, c := range categories[scope.Type] {
		if c.token == constraint[0].Value {
			return c.code
		}
	}
	return ""
}

// ChoiceOf returns what a person can choose of an item.
func ChoiceOf(item string) Choice {
	scope, ok := smart.ParseResourceScope(item)
	if !ok {
		return Choice{Name: item}
	}
	return Choice{Name: item, Parts: parts(item, scope), scopes: []smart.ResourceScope{scope}}
}

package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
)

// challengedScope extracts the scopes from a WWW-Authenticate challenge.
var challengedScope = regexp.MustCompile(`scope="([^"]*)"`)

// TestGuardChallenges checks for all types and interactions that a challenge never requests a scope that the token already has.
// Otherwise, a client with step-up authorization would loop.
func TestGuardChallenges(t *testing.T) {
	t.Parallel()
	h := hapiServer(t)
	w := newTestPatients()
	h.store(t, w.records(`
		Practitioner {doctor} "name":[{"family":"Doctor"}]
		Patient {patient} "name":[{"family":"Plain"}]`))
	g := startGuarded(t, "challenges", h.fhirAPI)
	types := slices.Concat(compartmentTypes(), everybodys, []string{
		"Binary", "Bundle", "Library", "Measure", "StructureDefinition", "PlanDefinition", "ActivityDefinition", "Subscription", "Task", "OperationDefinition",
		"OrganizationAffiliation", "InsurancePlan", "MessageHeader", "VerificationResult", "Evidence", "GraphDefinition", "SearchParameter", "ValueSet", "Parameters", "Nonsense",
	})
	slices.Sort(types)
	sent, named := 0, 0
	for _, scope := range []string{
		"patient/*.rs", "patient/*.cruds", "user/*.cruds", "system/*.rs", "system/*.cruds", "patient/*.r", "patient/*.s",
		"patient/*.rs?category=x", "patient/Observation.rs patient/Patient.r",
	} {
		who := guardHolder{scope: scope, patient: w.names["{patient}"], fhirUser: w.text("Practitioner/{doctor}")}
		for n, resourceType := range slices.Compact(types) {
			requests := []string{"GET %s"}
			if n%6 == 0 || slices.Contains([]string{"Binary", "Bundle", "Provenance", "Group", "Patient"}, resourceType) {
				requests = append(requests, "GET %s/x", "GET %s/x/_history", "GET %s?_id=x", "GET %s/_history", "POST %s", "PUT %s/x", "DELETE %s/x", "GET %s/x/$everything", "GET %s/$meta", "GET Patient/x/%s",
					"GET $export?_type=%s", "GET Patient/$export?_type=%s", "GET Observation?_include=Observation:subject:%s", "GET ?_type=%s", "GET _history?_type=%s")
			}
			for _, request := range requests {
				method, path, _ := strings.Cut(fmt.Sprintf(request, resourceType), " ")
				body := ""
				if method == http.MethodPost || method == http.MethodPut {
					body = fmt.Sprintf(`{"resourceType":%q,"id":"x"}`, resourceType)
				}
				a := g.send(t, who, method, path, body, "Prefer", "respond-async")
				sent++
				for _, match := range challengedScope.FindAllStringSubmatch(strings.Join(a.header.Values("WWW-Authenticate"), ","), -1) {
					named++
					missing := false
					for one := range strings.FieldsSeq(match[1]) {
						missing = missing || !coversScope(scope, one)
					}
					if !missing {
						t.Errorf("%s: %s %s: %d names %s", scope, method, path, a.status, match[1])
					}
				}
			}
		}
	}
	t.Logf("%d requests, %d challenges that name a scope", sent, named)
	if named == 0 {
		t.Error("no challenge names a scope")
	}
}

// compartmentTypes returns the resource types of the Patient compartment.
func compartmentTypes() []string {
	var types []string
	for _, t := range sortedTypes {
		types = append(types, t[0])
	}
	for name := range strings.FieldsSeq("Account AdverseEvent Appointment Basic Claim Composition Coverage Device Group List Media Person Provenance QuestionnaireResponse RelatedPerson Schedule Specimen SupplyRequest VisionPrescription") {
		if _, ok := compartment.PatientParameters(name); ok {
			types = append(types, name)
		}
	}
	return append(types, "Patient", "Provenance", "Group", "Person")
}

// coversScope reports whether the scopes in held together include all permissions of the scope one.
func coversScope(granted, one string) bool {
	level, rest, _ := strings.Cut(one, "/")
	resourceType, permissions, _ := strings.Cut(rest, ".")
	missing := smartLetters(permissions)
	for scope := range strings.FieldsSeq(granted) {
		grantedLevel, grantedRest, _ := strings.Cut(scope, "/")
		grantedType, grantedPermissions, _ := strings.Cut(grantedRest, ".")
		if grantedLevel == level && (grantedType == "*" || grantedType == resourceType) && (!strings.Contains(scope, "?") || strings.Contains(one, "?")) {
			for _, letter := range smartLetters(strings.Split(grantedPermissions, "?")[0]) {
				missing = strings.ReplaceAll(missing, string(letter), "")
			}
		}
	}
	return missing == ""
}

func smartLetters(permissions string) string {
	switch permissions {
	case "read":
		return "rs"
	case "write":
		return "cud"
	case "*":
		return "cruds"
	}
	return permissions
}

package enforce_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestCreate(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	for _, tt := range []writing{
		{"own", patientA, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"by v1 scopes", access.Holder{Scope: "patient/*.write", Patient: "a"}, "POST Observation", own, "", 201, "Observation/new-19=Patient/a"},
		{"another's", patientA, "POST Observation", observation("", "Patient/b", ""), "", 403, ""},
		{"nobody's", patientA, "POST Observation", `{"resourceType":"Observation","status":"final"}`, "", 403, ""},
		{"own and another's", patientA, "POST Observation", observation("", "Patient/a", `,"performer":[{"reference":"Patient/b"}]`), "", 403, ""},
		{"own, by performer, about another", patientA, "POST Observation", observation("", "Patient/b", `,"performer":[{"reference":"Patient/a"}]`), "", 403, ""},
		{"another's of another server", patientA, "POST Observation", observation("", "http://backend.internal:8080/fhir/Patient/a", ""), "", 403, ""},
		{"own by the gateway's address", patientA, "POST Observation", observation("", "https://gateway.example/fhir/R4/Patient/a", ""), "", 201, "Observation/new-19=Patient/a"},
		{"own by its version", patientA, "POST Observation", observation("", "Patient/a/_history/1", ""), "", 201, "Observation/new-19=Patient/a"},
		{"the id in the body means nothing", patientA, "POST Observation", observation("b1", "Patient/a", ""), "", 201, "Observation/new-19=Patient/a"},
		{"a new patient", patientA, "POST Patient", `{"resourceType":"Patient"}`, "", 403, ""},
		{"a new patient with one's own id", patientA, "POST Patient", `{"resourceType":"Patient","id":"a"}`, "", 403, ""},
		{"a new patient by a clinician", clinician, "POST Patient", `{"resourceType":"Patient"}`, "", 201, "Patient/new-19=Patient"},
		{"a shared type", patientA, "POST Organization", `{"resourceType":"Organization"}`, "", 403, ""},
		{"a type of no patient", patientA, "POST ValueSet", `{"resourceType":"ValueSet"}`, "", 403, ""},
		{"another type than the path's", patientA, "POST Encounter", own, "", 400, ""},
		{"a name twice", patientA, "POST Observation", own[:len(own)-1] + `,"subject":{"reference":"Patient/b"}}`, "", 400, ""},
		{"a name twice in depth", patientA, "POST Observation", strings.Replace(own, `"reference":`, `"reference":"Patient/b","reference":`, 1), "", 400, ""},
		{"XML", patientA, "POST Observation", "<Observation/>", "Content-Type: application/fhir+xml", 415, ""},
		{"read alone", access.Holder{Scope: "patient/*.rs", Patient: "a"}, "POST Observation", own, "", 403, ""},
		{"update alone", updater, "POST Observation", own, "", 403, ""},
		{"within a constraint", laboratory, "POST Observation", own, "", 201, "Observation/new-19=laboratory"},
		{"outside a constraint", laboratory, "POST Observation", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"the context of one scope with the constraint of another", mixed, "POST Observation", observation("", "Patient/b", ""), "", 403, ""},
		{"the other scope", mixed, "POST Observation", strings.Replace(observation("", "Patient/b", ""), "laboratory", "vital-signs", 1), "", 201, "Observation/new-19=Patient/b"},
		{"contained of another", patientA, "POST Observation", observation("", "Patient/a", `,"contained":[{"resourceType":"Specimen","id":"s","subject":{"reference":"Patient/b"}}]`), "", 403, ""},
		{"own device", patientA, "POST Device", `{"resourceType":"Device","patient":{"reference":"Patient/a"}}`, "", 201, "Device/new-19=Patient/a"},
		{"a device of nobody", patientA, "POST Device", `{"resourceType":"Device"}`, "", 403, ""},
		{"another's device", patientA, "POST Device", `{"resourceType":"Device","patient":{"reference":"Patient/b"}}`, "", 403, ""},
		{"a binary of an own record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/a1"}}`, "", 201, "Binary/new-19=Observation/a1"},
		{"a binary of another's record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Observation/b1"}}`, "", 403, ""},
		{"a binary of a device of nobody", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain","securityContext":{"reference":"Device/free"}}`, "", 403, ""},
		{"a binary of no record", patientA, "POST Binary", `{"resourceType":"Binary","contentType":"text/plain"}`, "", 403, ""},
		{"a provenance of an own record", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Observation/a1"}]}`, "", 201, "Provenance/new-19=Observation/a1"},
		{"a provenance of oneself", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"}]}`, "", 201, "Provenance/new-19=Patient/a"},
		{"a provenance of another's record besides", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Observation/b1"}]}`, "", 403, ""},
		{"a provenance of another patient besides", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Patient/a"},{"reference":"Patient/b"}]}`, "", 403, ""},
		{"a provenance of what everyone reads", patientA, "POST Provenance", `{"resourceType":"Provenance","target":[{"reference":"Practitioner/alice"}]}`, "", 403, ""},
		{"a provenance by header", patientA, "POST Observation", own, `X-Provenance: {"resourceType":"Provenance","target":[]}`, 403, ""},
		{"a provenance by header, whole but for Provenance", access.Holder{Scope: "user/Observation.cruds user/*.rs", User: clinician.User}, "POST Observation", own, `X-Provenance: {"resourceType":"Provenance","target":[]}`, 403, ""},
		{"a group of two", patientA, "POST Group", `{"resourceType":"Group","member":[{"entity":{"reference":"Patient/a"}},{"entity":{"reference":"Patient/b"}}]}`, "", 403, ""},
		{"a parameter", patientA, "POST Observation?_format=json", own, "", 201, "Observation/new-19=Patient/a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

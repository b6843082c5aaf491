package enforce_test

import (
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestUpdate(t *testing.T) {
	t.Parallel()
	own := observation("a1", "Patient/a", "")
	for _, tt := range []writing{
		{"own", patientA, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"own patient", patientA, "PUT Patient/a", `{"resourceType":"Patient","id":"a","gender":"female"}`, "", 200, "Patient/a=female"},
		{"another patient", patientA, "PUT Patient/b", `{"resourceType":"Patient","id":"b","gender":"female"}`, "", 403, ""},
		{"moved to another patient", patientA, "PUT Observation/a1", observation("a1", "Patient/b", ""), "", 403, ""},
		{"moved from another patient", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"not there", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), "", 404, ""},
		{"of two patients", patientA, "PUT Observation/ab", observation("ab", "Patient/a", ""), "", 403, ""},
		{"taken out of all compartments", patientA, "PUT Observation/a1", `{"resourceType":"Observation","id":"a1","status":"final"}`, "", 403, ""},
		{"another id", patientA, "PUT Observation/a1", observation("a2", "Patient/a", ""), "", 400, ""},
		{"no id", patientA, "PUT Observation/a1", observation("", "Patient/a", ""), "", 400, ""},
		{"another type", patientA, "PUT Encounter/a1", own, "", 400, ""},
		{"without read", updater, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"create alone", creator, "PUT Observation/a1", own, "", 403, ""},
		{"within a constraint", laboratory, "PUT Observation/a1", own, "", 200, "Observation/a1=amended"},
		{"outside a constraint before", laboratory, "PUT Observation/a2", observation("a2", "Patient/a", ""), "", 404, ""},
		{"outside a constraint after", laboratory, "PUT Observation/a1", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"before by one scope, after by another", access.Holder{Scope: "patient/Observation.cruds?category=http://c|laboratory patient/Observation.cruds?category=http://c|vital-signs", Patient: "a"}, "PUT Observation/a1", strings.Replace(own, "laboratory", "vital-signs", 1), "", 403, ""},
		{"the version", patientA, "PUT Observation/a1", own, `If-Match: W/"1"`, 200, "Observation/a1=amended"},
		{"another version", patientA, "PUT Observation/a1", own, `If-Match: W/"7"`, 412, ""},
		{"only if it is not there", patientA, "PUT Observation/a1", own, `If-None-Match: *`, 412, ""},
		{"another version of another's", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), `If-Match: W/"7"`, 404, ""},
		{"own device", patientA, "PUT Device/a1", `{"resourceType":"Device","id":"a1","status":"active","patient":{"reference":"Patient/a"}}`, "", 200, "Device/a1=active"},
		{"a device of nobody becomes one's own", patientA, "PUT Device/free", `{"resourceType":"Device","id":"free","patient":{"reference":"Patient/a"}}`, "", 403, ""},
		{"own device becomes nobody's", patientA, "PUT Device/a1", `{"resourceType":"Device","id":"a1"}`, "", 403, ""},
		{"a shared type", patientA, "PUT Practitioner/alice", `{"resourceType":"Practitioner","id":"alice"}`, "", 403, ""},
		{"own provenance", patientA, "PUT Provenance/a1", `{"resourceType":"Provenance","id":"a1","recorded":"2026","target":[{"reference":"Observation/a1"}]}`, "", 200, "Provenance/a1=2026"},
		{"another's provenance", patientA, "PUT Provenance/b1", `{"resourceType":"Provenance","id":"b1","target":[{"reference":"Observation/a1"}]}`, "", 404, ""},
		{"a parameter", patientA, "PUT Observation/a1?_meta-history=false", own, "", 403, ""},
		{"a clinician", clinician, "PUT Observation/b1", observation("b1", "Patient/b", ""), "", 200, "Observation/b1=amended"},
		{"a clinician, not there", clinician, "PUT Observation/none", observation("none", "Patient/b", ""), "", 201, "Observation/none=amended"},
		{"all of one type, not there", access.Holder{Scope: "user/Observation.u", User: clinician.User}, "PUT Observation/none", observation("none", "Patient/b", ""), "", 201, "Observation/none=amended"},
		{"all of one type, another version", access.Holder{Scope: "user/Observation.u", User: clinician.User}, "PUT Observation/b1", observation("b1", "Patient/b", ""), `If-Match: W/"7"`, 412, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// TestUpsert checks what an update of what is not there does where the site allows it.
func TestUpsert(t *testing.T) {
	t.Parallel()
	for _, tt := range []writing{
		{"not there", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), "", 201, "Observation/none=amended"},
		{"not there, for another", patientA, "PUT Observation/none", observation("none", "Patient/b", ""), "", 403, ""},
		{"not there, if it has a version", patientA, "PUT Observation/none", observation("none", "Patient/a", ""), `If-Match: W/"1"`, 404, ""},
		{"none that matches, not there", patientA, "PUT Observation?_id=none", observation("none", "Patient/a", ""), "", 201, "Observation/none=amended"},
		{"none that matches, taken", patientA, "PUT Observation?_id=b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"taken", patientA, "PUT Observation/b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"not there, referring to another's record", patientA, "PUT Observation/none", observation("none", "Patient/a", `,"focus":[{"reference":"Encounter/b1"}]`), "", 403, ""},
		{"deleted", patientA, "PUT Observation/gone", observation("gone", "Patient/a", ""), "", 404, "Observation/gone=!amended"},
		{"own patient", access.Holder{Scope: "patient/*.cruds", Patient: "none"}, "PUT Patient/none", `{"resourceType":"Patient","id":"none"}`, "", 404, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, writable...)
			g.Upsert = true
			g.server.Put(observation("gone", "Patient/b", ""))
			g.written(writing{holder: clinician, request: "DELETE Observation/gone"})
			tt.checkAt(g)
		})
	}
}

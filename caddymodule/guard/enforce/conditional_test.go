package enforce_test

import (
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
)

func TestConditional(t *testing.T) {
	t.Parallel()
	own := observation("", "Patient/a", "")
	none := "If-None-Exist: "
	deleter := access.Holder{Scope: "user/Observation.d patient/Observation.s", Patient: "a", User: clinician.User}
	chained := access.Holder{Scope: "user/Observation.ds patient/Patient.s", Patient: "a", User: clinician.User}
	finder := access.Holder{Scope: "patient/Observation.d user/*.s", Patient: "a", User: clinician.User}
	for _, tt := range []writing{
		{"create, none", patientA, "POST Observation", own, none + "status=cancelled", 201, "Observation/new-19=Patient/a"},
		{"create, one", patientA, "POST Observation", own, none + "_id=a1", 200, "Observation/new-19=!Patient/a"},
		{"create, several", patientA, "POST Observation", own, none + "status=final", 412, "Observation/new-19=!Patient/a"},
		{"create, one of another", patientA, "POST Observation", own, none + "_id=b1", 201, "Observation/new-19=Patient/a"},
		{"create, own among others", patientA, "POST Observation", own, none + "_id=a1,b1", 200, "Observation/new-19=!Patient/a"},
		{"create, by another type", patientA, "POST Observation", own, none + "_filter=x", 403, ""},
		{"create, without search", creator, "POST Observation", own, none + "_id=a1", 403, ""},
		{"create, v1 scopes", access.Holder{Scope: "patient/*.read patient/*.write", Patient: "a"}, "POST Observation", own, none + "_id=a1", 200, ""},
		{"create, all of one type", staff, "POST Observation", own, none + "_id=b1", 200, ""},
		{"create, all of one type, none", staff, "POST Observation", own, none + "_id=none", 201, "Observation/new-19=Patient/a"},
		{"update, one", patientA, "PUT Observation?_id=a1", own, "", 200, "Observation/a1=amended"},
		{"update, the one with the id", patientA, "PUT Observation?_id=a1", observation("a1", "Patient/a", ""), "", 200, "Observation/a1=amended"},
		{"update, another id", patientA, "PUT Observation?_id=a1", observation("a2", "Patient/a", ""), "", 400, ""},
		{"update, none", patientA, "PUT Observation?_id=none", own, "", 201, "Observation/new-19=amended"},
		{"update, none, to another patient", patientA, "PUT Observation?_id=none", observation("", "Patient/b", ""), "", 403, ""},
		{"update, none with that id", patientA, "PUT Observation?_id=none", observation("none", "Patient/a", ""), "", 404, ""},
		{"update, none, and the id of another record of one's own", patientA, "PUT Observation?_id=none", observation("a1", "Patient/a", ""), "", 409, ""},
		{"update, one of another", patientA, "PUT Observation?_id=b1", own, "", 201, "Observation/new-19=amended"},
		{"update, one of another with the id", patientA, "PUT Observation?_id=b1", observation("b1", "Patient/a", ""), "", 404, ""},
		{"update, several", patientA, "PUT Observation?status=final", own, "", 412, ""},
		{"update, of two patients", patientA, "PUT Observation?_id=ab", own, "", 403, ""},
		{"update, to another patient", patientA, "PUT Observation?_id=a1", observation("", "Patient/b", ""), "", 403, ""},
		{"update, without search", updater, "PUT Observation?_id=a1", own, "", 403, ""},
		{"update, no new patient", access.Holder{Scope: "patient/*.us", Patient: "a"}, "PUT Patient?_id=none", `{"resourceType":"Patient"}`, "", 403, ""},
		{"update, all of one type", staff, "PUT Observation?_id=b1", observation("", "Patient/b", ""), "", 200, "Observation/b1=amended"},
		{"update, another version", patientA, "PUT Observation?_id=a1", own, `If-Match: W/"7"`, 412, ""},
		{"delete, one", patientA, "DELETE Observation?_id=a1", "", "", 204, "Observation/a1=!resourceType"},
		{"delete, none", patientA, "DELETE Observation?_id=none", "", "", 404, ""},
		{"delete, another's", patientA, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, by another's", patientA, "DELETE Observation?subject=Patient/b&_id=b1", "", "", 404, ""},
		{"delete, several", patientA, "DELETE Observation?status=final", "", "", 412, ""},
		{"delete, a patient", patientA, "DELETE Patient?_id=a", "", "", 403, ""},
		{"delete, cascading", patientA, "DELETE Observation?_id=a1&_cascade=delete", "", "", 403, ""},
		{"delete, cascading, all of one type", staff, "DELETE Observation?_id=a1&_cascade=delete", "", "", 403, ""},
		{"delete, without search", access.Holder{Scope: "patient/*.d", Patient: "a"}, "DELETE Observation?_id=a1", "", "", 403, ""},
		{"delete, all of one type", staff, "DELETE Observation?_id=b1", "", "", 204, "Observation/b1=!resourceType"},
		{"delete, all of one type, searching one patient's", deleter, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, all of one type, by a chain that finds nothing", chained, "DELETE Observation?subject:Patient.family=nobody&_id=b1", "", "", 404, ""},
		{"delete, all of one type, by a chain", chained, "DELETE Observation?subject:Patient.family=Adams&_id=a2", "", "", 204, "Observation/a2=!resourceType"},
		{"delete, one patient's, searching all", finder, "DELETE Observation?_id=a1", "", "", 204, "Observation/a1=!resourceType"},
		{"delete, one patient's, searching all, another's", finder, "DELETE Observation?_id=b1", "", "", 404, ""},
		{"delete, with an include", patientA, "DELETE Observation?_id=a1&_include=Observation:subject", "", "", 400, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

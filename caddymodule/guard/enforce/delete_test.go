package enforce_test

import (
	"io"
	"strings"
	"testing"
)

func TestDelete(t *testing.T) {
	t.Parallel()
	gone := func(reference string) string { return reference + "=!resourceType" }
	for _, tt := range []writing{
		{"own", patientA, "DELETE Observation/a1", "", "", 204, gone("Observation/a1")},
		{"another's", patientA, "DELETE Observation/b1", "", "", 404, ""},
		{"not there", patientA, "DELETE Observation/none", "", "", 404, ""},
		{"of two patients", patientA, "DELETE Observation/ab", "", "", 403, ""},
		{"own patient", patientA, "DELETE Patient/a", "", "", 403, ""},
		{"another patient", patientA, "DELETE Patient/b", "", "", 403, ""},
		{"a patient by a clinician", clinician, "DELETE Patient/b", "", "", 204, gone("Patient/b")},
		{"within a constraint", laboratory, "DELETE Observation/a1", "", "", 204, gone("Observation/a1")},
		{"outside a constraint", laboratory, "DELETE Observation/a2", "", "", 404, ""},
		{"no permission", updater, "DELETE Observation/a1", "", "", 403, ""},
		{"another version", patientA, "DELETE Observation/a1", "", `If-Match: W/"7"`, 412, ""},
		{"a shared type", patientA, "DELETE Practitioner/alice", "", "", 403, ""},
		{"a device of nobody", patientA, "DELETE Device/free", "", "", 403, ""},
		{"own device", patientA, "DELETE Device/a1", "", "", 204, gone("Device/a1")},
		{"cascading", patientA, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header", patientA, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of one type", staff, "DELETE Observation/a1?_cascade=delete", "", "", 403, ""},
		{"cascading by header, all of one type", staff, "DELETE Observation/a1", "", "X-Cascade: delete", 403, ""},
		{"cascading, all of all types", clinician, "DELETE Observation/a1?_cascade=delete", "", "", 204, gone("Observation/a1")},
		{"an unknown parameter", patientA, "DELETE Observation/a1?_expunge=true", "", "", 403, ""},
		{"all of one type", staff, "DELETE Observation/b1", "", "", 204, gone("Observation/b1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.check(t)
		})
	}
}

// TestDeletedIsNotFound checks that what was deleted answers as what never was, and as what is not covered.
func TestDeletedIsNotFound(t *testing.T) {
	t.Parallel()
	g := newGateway(t, writable...)
	g.written(writing{holder: patientA, request: "DELETE Observation/a1"})
	answers := map[string]bool{}
	for _, request := range []string{
		"DELETE Observation/a1", "DELETE Observation/b1", "DELETE Observation/none", "PUT Observation/a1", "PUT Observation/b1", "PUT Observation/none",
	} {
		id := request[strings.IndexByte(request, '/')+1:]
		response := g.written(writing{holder: patientA, request: request, body: observation(id, "Patient/a", "")})
		body, _ := io.ReadAll(response.Body)
		answers[response.Status+string(body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("answers differ: %v", answers)
	}
}

package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRelatedPatient is over what the FHIR server has for a RelatedPerson: whose records they may see.
func TestRelatedPatient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, answer, want string
	}{
		{"a patient's", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/a"}}`, "a"},
		{"by our address", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://gateway.example/fhir/R4/Patient/a"}}`, "a"},
		{"of another server's patient", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://other.example/fhir/Patient/a"}}`, ""},
		{"of what is no patient", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Group/a"}}`, ""},
		{"of nobody", `{"resourceType":"RelatedPerson","id":"r"}`, ""},
		{"another person", `{"resourceType":"RelatedPerson","id":"s","patient":{"reference":"Patient/a"}}`, ""},
		{"another type", `{"resourceType":"Coverage","id":"r","patient":{"reference":"Patient/a"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.server.Answers = map[string]http.HandlerFunc{"RelatedPerson/r": answering(tt.answer)}
			got, err := g.RelatedPatient(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil), g.server, "r")
			if got != tt.want || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	if got, err := newGateway(t).RelatedPatient(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil), newGateway(t).server, "r"); got != "" || err != nil {
		t.Errorf("nobody is %q, %v", got, err)
	}
}

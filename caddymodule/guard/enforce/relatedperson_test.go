package enforce_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TestRelatedPatients is over what the FHIR server has for who acts for others: whose records they may see.
func TestRelatedPatients(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, user, answer, want string
	}{
		{"a patient's", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/a"}}`, "a"},
		{"by our address", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://gateway.example/fhir/R4/Patient/a"}}`, "a"},
		{"no longer", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"r","active":false,"patient":{"reference":"Patient/a"}}`, ""},
		{"another person", "RelatedPerson", `{"resourceType":"RelatedPerson","id":"s","patient":{"reference":"Patient/a"}}`, ""},
		{"another type", "RelatedPerson", `{"resourceType":"Person","id":"r","link":[{"target":{"reference":"Patient/a"}}]}`, ""},
		{"of two", "Person", `{"resourceType":"Person","id":"r","link":[{"target":{"reference":"Patient/a"}},{"target":{"reference":"Patient/b"}}]}`, "a b"},
		{"nobody's", "Person", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			if tt.answer != "" {
				g.server.Answers = map[string]http.HandlerFunc{tt.user + "/r": answering(tt.answer)}
			}
			got, err := g.RelatedPatients(httptest.NewRequest(http.MethodGet, "/fhir/R4/Patient", nil), g.server, interaction.Reference{Type: tt.user, ID: "r"}, nil)
			if !slices.Equal(got, strings.Fields(tt.want)) || err != nil {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// expansion is a ValueSet as described in docs/evidence/interface.md.
type expansion struct {
	ResourceType string
	URL          string
	Expansion    struct {
		Offset   *int
		Total    *int
		Contains []struct{ System, Code, Display string }
	}
}

func (e expansion) displays() (displays []string) {
	for _, concept := range e.Expansion.Contains {
		displays = append(displays, concept.Display)
	}
	return displays
}

const (
	gender        = "http://hl7.org/fhir/ValueSet/administrative-gender"
	maritalStatus = "http://hl7.org/fhir/ValueSet/marital-status"
)

func TestExpand(t *testing.T) {
	token := example.userToken(t, "openid", "user/*.rs").AccessToken

	t.Run("whole", func(t *testing.T) {
		answer := example.expand(t, token, gender).is(t, http.StatusOK)
		var got expansion
		answer.decode(t, &got)
		if got.ResourceType != "ValueSet" || got.URL != gender || got.Expansion.Offset == nil || *got.Expansion.Offset != 0 {
			t.Errorf("got %s", answer.body)
		}
		if displays := got.displays(); !slices.Equal(displays, []string{"Male", "Female", "Other", "Unknown"}) {
			t.Errorf("got %q", displays)
		}
		for _, concept := range got.Expansion.Contains {
			if concept.System != "http://hl7.org/fhir/administrative-gender" || concept.Code != strings.ToLower(concept.Display) {
				t.Errorf("got %+v", concept)
			}
		}
		if got := answer.header.Get("Content-Type"); !strings.HasPrefix(got, "application/fhir+json") {
			t.Errorf("Content-Type %q", got)
		}
	})
	t.Run("filter", func(t *testing.T) {
		var got expansion
		example.expand(t, token, maritalStatus, "filter", "married").is(t, http.StatusOK).decode(t, &got)
		displays := got.displays()
		slices.Sort(displays)
		if !slices.Equal(displays, []string{"Married", "Never Married"}) {
			t.Errorf("got %q", displays)
		}
	})
	t.Run("page", func(t *testing.T) {
		var got expansion
		example.expand(t, token, gender, "offset", "1", "count", "2").is(t, http.StatusOK).decode(t, &got)
		if displays := got.displays(); !slices.Equal(displays, []string{"Female", "Other"}) || *got.Expansion.Offset != 1 {
			t.Errorf("got %q from %d", displays, *got.Expansion.Offset)
		}
		if got.Expansion.Total == nil || *got.Expansion.Total != 4 {
			t.Errorf("total %v, want 4", got.Expansion.Total)
		}
	})
	t.Run("unknown here goes to the backend", func(t *testing.T) {
		var got expansion
		example.expand(t, token, "https://backend.example/ValueSet/only-here").is(t, http.StatusOK).decode(t, &got)
		if displays := got.displays(); !slices.Equal(displays, []string{"From the backend"}) {
			t.Errorf("got %q", displays)
		}
	})
	t.Run("unknown everywhere", func(t *testing.T) {
		unknown := "https://example.org/ValueSet/nowhere"
		example.expand(t, token, unknown).is(t, http.StatusNotFound).isOutcome(t)
		if last := fhirServer.last(t); !strings.Contains(last.URL, "nowhere") {
			t.Errorf("no backend request; the last one was %s", last.URL)
		}
	})
}

func TestExpandRefused(t *testing.T) {
	token := example.userToken(t, "openid", "user/*.rs").AccessToken
	tests := []struct {
		name, query string
	}{
		{"no url", ""},
		{"two urls", "url=a&url=b"},
		{"invalid count", "url=" + gender + "&count=x"},
		{"negative offset", "url=" + gender + "&offset=-1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			example.fhir(t, token, http.MethodGet, "ValueSet/$expand?"+test.query, "").is(t, http.StatusBadRequest).isOutcome(t)
		})
	}
}

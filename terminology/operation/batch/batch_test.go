package batch_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the operations
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

func TestValidations(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	one := func(code string) string {
		return `{"name":"validation","resource":{"resourceType":"Parameters","parameter":[{"name":"coding","valueCoding":{"system":"http://x/colours","code":"` + code + `"}}]}}`
	}
	body := `{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/is-red"},` + one("red") + "," + one("blue") +
		`,{"name":"validation","resource":{"resourceType":"Parameters"}}]}`
	w, _ := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", body)
	if got := strings.Count(w.Body.String(), `"name":"validation"`); got != 3 || strings.Count(w.Body.String(), `"name":"result"`) != 2 {
		t.Errorf("got %s", w.Body)
	}
	fixture.WantContains(t, w.Body.String(), `{"resourceType":"OperationOutcome","issue":[{"severity":"error","code":"invalid"`)
}

// TestBadEntries checks that an invalid entry of a batch gets an OperationOutcome without affecting the others.
func TestBadEntries(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	h := &api.Handler{Library: terminologytest.ColourLibrary(t)}
	entry := func(parameters ...string) string {
		return `{"name":"validation","resource":` + fixture.ParametersOf(parameters...) + `}`
	}
	red := `{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`
	bad := []struct{ name, entry, want string }{
		{"nothing to validate", entry(`{"name":"codingX","valueCoding":{"system":"http://x/colours","code":"red"}}`), `"code":"invalid","details":{"text":"Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)"}`},
		{"two codes", entry(red, `{"name":"code","valueCode":"red"}`), "exactly one"},
		{"a code without a system", entry(`{"name":"code","valueCode":"red"}`), "requires the parameter system"},
		{"an unknown value set", entry(red, fixture.URI("url", "http://x/none")), `"Unable_to_resolve_value_Set_"`},
		{"a broken Coding", entry(`{"name":"coding","valueCoding":{"system":1}}`), `"structure"`},
		{"no resource", `{"name":"validation","valueString":"x"}`, "must be a Parameters resource"},
		{"another resource", `{"name":"validation","resource":{"resourceType":"Patient"}}`, "not Patient"},
		{"a bad parameter", entry(red, `{"name":"displayLanguage","valueCode":"--"}`), "displayLanguage"},
	}
	for _, test := range bad {
		t.Run(test.name, func(t *testing.T) {
			w, answer := terminologytest.Call(t, h, "POST", "/ValueSet/$batch-validate-code", fixture.ParametersOf(fixture.URI("url", "http://x/is-red"), entry(red), test.entry, entry(red)))
			var kinds []string
			for _, p := range answer["parameter"].([]any) {
				kinds = append(kinds, p.(map[string]any)["resource"].(map[string]any)["resourceType"].(string))
			}
			if w.Code != 200 || !slices.Equal(kinds, []string{"Parameters", "OperationOutcome", "Parameters"}) || strings.Count(w.Body.String(), `{"name":"result","valueBoolean":true}`) != 2 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
			fixture.WantContains(t, w.Body.String(), test.want)
		})
	}
}

// TestIsBounded checks that the cost of common resources is charged for each validation.
func TestIsBounded(t *testing.T) {
	terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	brought := `{"name":"tx-resource","resource":{"resourceType":"CodeSystem","url":"http://x/c","description":"` + strings.Repeat("x", (256<<20)/500) + `"}}`
	one := `,{"name":"validation","resource":{"resourceType":"Parameters","parameter":[{"name":"url","valueUri":"http://x/colours/vs"},{"name":"code","valueCode":"red"},{"name":"system","valueUri":"http://x/colours"}]}}`
	for n, want := range map[int]int{1: 200, 500: 413} {
		body := `{"resourceType":"Parameters","parameter":[` + brought + strings.Repeat(one, n) + `]}`
		if w, _ := terminologytest.Call(t, &api.Handler{Library: terminologytest.ColourLibrary(t)}, "POST", "/ValueSet/$batch-validate-code", body); w.Code != want {
			t.Errorf("%d validations: got %d %.300s", n, w.Code, w.Body)
		}
	}
}

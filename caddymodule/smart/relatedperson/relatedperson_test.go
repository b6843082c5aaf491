package relatedperson_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relatedperson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// TestPatients evaluates relationships at noon UTC on June 15, 2026.
func TestPatients(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
	const ada, bob = `{"target":{"reference":"Patient/ada"}%s}`, `{"target":{"reference":"Patient/bob"}}`
	related := func(rest string) string {
		return `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Patient/ada"}` + rest + `}`
	}
	person := func(rest, ofAda string) string {
		return `{"resourceType":"Person","id":"p"` + rest + `,"link":[` + fmt.Sprintf(ada, ofAda) + `,` + bob + `]}`
	}
	for _, tt := range []struct{ name, text, want string }{
		{"no period", related(""), "ada"},
		{"active", related(`,"active":true`), "ada"},
		{"inactive", related(`,"active":false`), ""},
		{"active, as a text", related(`,"active":"true"`), ""},
		{"unknown whether active", related(`,"active":null`), ""},
		{"began", related(`,"period":{"start":"2020"}`), "ada"},
		{"begins today", related(`,"period":{"start":"2026-06-15"}`), "ada"},
		{"begins tomorrow", related(`,"period":{"start":"2026-06-16"}`), ""},
		{"begins in an hour", related(`,"period":{"start":"2026-06-15T13:00:00Z"}`), ""},
		{"began an hour ago, elsewhere", related(`,"period":{"start":"2026-06-15T13:00:00+02:00"}`), "ada"},
		{"ended yesterday", related(`,"period":{"start":"2020","end":"2026-06-14"}`), ""},
		{"ends today", related(`,"period":{"end":"2026-06-15"}`), "ada"},
		{"ends this year", related(`,"period":{"end":"2026"}`), "ada"},
		{"ended an hour ago", related(`,"period":{"end":"2026-06-15T11:00:00Z"}`), ""},
		{"ended, elsewhere", related(`,"period":{"end":"2026-06-15T13:00:00+02:00"}`), ""},
		{"invalid end date", related(`,"period":{"end":"soon"}`), ""},
		{"end is not a string", related(`,"period":{"end":2027}`), ""},
		{"period is not an object", related(`,"period":["2026"]`), ""},
		{"unknown modifier extension", related(`,"modifierExtension":[{"url":"http://x.example","valueBoolean":true}]`), ""},
		{"another server's patient", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://other.example/Patient/ada"}}`, ""},
		{"by our address", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"https://here.example/fhir/Patient/ada"}}`, "ada"},
		{"without a patient", `{"resourceType":"RelatedPerson","id":"r"}`, ""},
		{"a group's", `{"resourceType":"RelatedPerson","id":"r","patient":{"reference":"Group/ada"}}`, ""},
		{"a person", person("", ""), "ada bob"},
		{"an inactive person", person(`,"active":false`, ""), ""},
		{"no confidence", person("", `,"assurance":"level1"`), "bob"},
		{"some confidence", person("", `,"assurance":"level2"`), "bob"},
		{"high confidence", person("", `,"assurance":"level3"`), "ada bob"},
		{"very high confidence", person("", `,"assurance":"level4"`), "ada bob"},
		{"an unknown confidence", person("", `,"assurance":"level9"`), "bob"},
		{"assurance is not a code", person("", `,"assurance":4`), "bob"},
		{"a link with a modifier", person("", `,"modifierExtension":[{"url":"http://x.example"}]`), "bob"},
		{"a person without links", `{"resourceType":"Person","id":"p"}`, ""},
		{"a person of many", `{"resourceType":"Person","id":"p","link":[` + strings.Repeat(bob+",", 100) + fmt.Sprintf(ada, "") + `]}`, "bob"},
		{"type that represents no person", `{"resourceType":"Coverage","id":"c","patient":{"reference":"Patient/ada"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := resource.Parse([]byte(tt.text), "https://here.example/fhir")
			if err != nil {
				t.Fatal(err)
			}
			if got := relatedperson.Patients(r, now); !slices.Equal(got, strings.Fields(tt.want)) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

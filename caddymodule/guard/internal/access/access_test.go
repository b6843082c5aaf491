package access_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// documentOf returns a stored Bundle of a type with the given entries.
func documentOf(kind string, entries ...string) string {
	return `{"resourceType":"Bundle","id":"d","type":"` + kind + `","entry":[{` + strings.Join(entries, "},{") + `}]}`
}

const (
	composition  = `"resource":{"resourceType":"Composition","subject":{"reference":"Patient/a"}}`
	patientA     = `"fullUrl":"https://gateway.example/fhir/R4/Patient/a","resource":{"resourceType":"Patient","id":"a"}`
	practitioner = `"fullUrl":"https://elsewhere.example/Practitioner/1","resource":{"resourceType":"Practitioner","id":"1"}`
	observationA = `"fullUrl":"urn:uuid:1","resource":{"resourceType":"Observation","subject":{"reference":"Patient/a"}}`
	observationB = `"resource":{"resourceType":"Observation","subject":{"reference":"Patient/b"}}`
	ofBoth       = `"resource":{"resourceType":"Observation","subject":{"reference":"Patient/a"},"performer":[{"reference":"Patient/b"}]}`
)

// provenancesOf returns an entry with a Provenance of eleven Observations, numbered consecutively from the given number.
func provenancesOf(from int) string {
	var targets []string
	for n := range 11 {
		targets = append(targets, fmt.Sprintf(`{"reference":"Observation/%d"}`, from+n))
	}
	return `"resource":{"resourceType":"Provenance","target":[` + strings.Join(targets, ",") + `]}`
}

func TestDocument(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		text           string
		covers, writes bool
	}{
		{"a document", documentOf("document", composition, patientA, practitioner, observationA), true, true},
		{"a collection", documentOf("collection", observationA), true, true},
		{"as many entries as are judged", documentOf("collection", slices.Repeat([]string{observationA}, 500)...), true, true},
		{"one more", documentOf("collection", slices.Repeat([]string{observationA}, 501)...), false, false},
		{"an entry that names another patient too", documentOf("collection", ofBoth), true, false},
		{"an entry of another patient", documentOf("document", composition, observationB), false, false},
		{"a document without a Composition", documentOf("document", observationA), false, false},
		{"a Composition that is not the first", documentOf("document", patientA, composition), false, false},
		{"a Composition of another patient", documentOf("document", strings.Replace(composition, "/a", "/b", 1), patientA), false, false},
		{"no entries", `{"resourceType":"Bundle","type":"collection"}`, false, false},
		{"entries of everybody alone", documentOf("collection", practitioner), false, false},
		{"an entry without a resource", documentOf("collection", observationA, `"fullUrl":"urn:uuid:2"`), false, false},
		{"entry is not an object", documentOf("collection", observationA)[:len(documentOf("collection", observationA))-2] + `,1]}`, false, false},
		{"a Bundle in the Bundle", documentOf("collection", observationA, `"resource":`+documentOf("collection", observationA)), false, false},
		{"a patient of another server with the same id", documentOf("collection", strings.Replace(patientA, "gateway", "elsewhere", 1)), false, false},
		{"an entry of another server, by relative reference", documentOf("collection", `"fullUrl":"https://elsewhere.example/Observation/1",`+strings.TrimPrefix(strings.Replace(observationA, `"resourceType"`, `"id":"1","resourceType"`, 1), `"fullUrl":"urn:uuid:1",`)), false, false},
		{"a patient under a URN", documentOf("collection", strings.Replace(patientA, "https://gateway.example/fhir/R4/Patient/a", "urn:uuid:1", 1)), false, false},
		{"a fullUrl of another resource", documentOf("collection", strings.Replace(patientA, "Patient/a", "Patient/b", 1)), false, false},
		{"a subject under a URN", documentOf("collection", strings.Replace(observationA, "Patient/a", "urn:uuid:2", 1)), false, false},
		{"another patient contained", documentOf("document", composition, `"resource":{"resourceType":"Practitioner","contained":[{"resourceType":"Observation","id":"1","subject":{"reference":"Patient/b"}}]}`), false, false},
		{"a type that is in no record", documentOf("document", composition, `"resource":{"resourceType":"AuditEvent"}`), false, false},
		{"too many to look up", documentOf("collection", observationA, provenancesOf(1), provenancesOf(12)), false, false},
		{"a transaction", documentOf("transaction", observationA), false, false},
		{"a searchset", documentOf("searchset", observationA), false, false},
		{"an entry with a response", documentOf("collection", observationA+`,"response":{"status":"200"}`), false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, err := resource.Parse([]byte(tt.text), "https://gateway.example/fhir/R4")
			if err != nil {
				t.Fatal(err)
			}
			r := access.New(access.Holder{Scope: "patient/*.cruds", Patient: "a"}, access.NewTypeRules(nil))
			if got := r.Covers(r.Grants[0], res); got.Covered != tt.covers {
				t.Errorf("covers: %v", got)
			}
			if got := r.CoversNew(r.Grants[0], res); got.Covered != tt.writes {
				t.Errorf("covers as new: %v", got)
			}
		})
	}
}

// Dependencies of an entry are looked up unless the Bundle contains them.
func TestDocumentNeeds(t *testing.T) {
	t.Parallel()
	provenance := `"resource":{"resourceType":"Provenance","target":[{"reference":"Observation/1"}]}`
	observation := `"resource":{"resourceType":"Observation","id":"1","subject":{"reference":"Patient/a"}}`
	for _, tt := range []struct {
		name   string
		text   string
		needed int
	}{
		{"elsewhere", documentOf("collection", observationA, provenance), 1},
		{"in the Bundle", documentOf("collection", observation, provenance), 0},
		{"in the Bundle, of the same patient", documentOf("collection", strings.Replace(observationA, `"resourceType"`, `"id":"1","resourceType"`, 1), provenance), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, err := resource.Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			r := access.New(access.Holder{Scope: "patient/*.r", Patient: "a"}, access.NewTypeRules(nil))
			if got := r.Covers(r.Grants[0], res); !got.Covered || len(got.Dependencies) != tt.needed {
				t.Errorf("got %v", got)
			}
		})
	}
}

// SideEffectOf covers every R4 resource type.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, name := range interaction.Types() {
		if access.SideEffectOf(name) == "" {
			t.Errorf("%s has no row", name)
		}
	}
	if got := access.SideEffectOf("SubscriptionTopic"); got != "" {
		t.Errorf("a type of R5's is %q", got)
	}
	if a, b := access.SideEffectOf("Subscription"), access.SideEffectOf("SearchParameter"); a != access.NotifiesRecipients || b != access.AltersBehavior {
		t.Errorf("Subscription %q, SearchParameter %q", a, b)
	}
}

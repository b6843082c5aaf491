package compose

import (
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// unexpandable maps the value sets that cannot be expanded, although R4 has their code systems, to a part of the error.
var unexpandable = map[string]string{
	// Requires a version of its code system that R4 (4.0.1) lacks.
	"http://hl7.org/fhir/ValueSet/task-code": `version '3.6.0'`,
	// Uses an undefined filter of an example code system.
	"http://hl7.org/fhir/ValueSet/example-filter": "acme-plasma",
	// Refers to a contained code system by fragment, which is not a code system URL.
	"http://hl7.org/fhir/ValueSet/example-hierarchical": "#hacked",
}

func TestCoreValueSetsExpand(t *testing.T) {
	l := coreLibrary(t)
	missing := regexp.MustCompile(`(code system|CodeSystem|value set) '?([^\s',]+)`)
	expanded, partly := 0, 0
	for _, vs := range l.set.ValueSets.List {
		x, err := l.expanding(nil).Codes(vs)
		if err == nil {
			expanded++
			if slices.ContainsFunc(x.CodeSystems, func(i uint32) bool { return l.set.Systems.CodeSystems[i].Content != definitions.ContentComplete }) {
				partly++
			}
			continue
		}
		if part := unexpandable[vs.URL]; part != "" {
			fixture.WantContains(t, err.Error(), part)
			continue
		}
		if !errors.Is(err, outcome.ErrIncomplete) {
			t.Errorf("%s: got %v, want something missing", vs.URL, err)
			continue
		}
		name := missing.FindStringSubmatch(err.Error())
		if name == nil {
			t.Errorf("%s: the error names nothing that is missing: %v", vs.URL, err)
			continue
		}
		if name[1] != "value set" {
			if index := l.set.Systems.CodeSystem(name[2], ""); index != definitions.None && l.set.Systems.CodeSystems[index].Content.HasConcepts() {
				t.Errorf("%s: %v, but it is here", vs.URL, err)
			}
		} else if _, ok := l.set.ValueSets.Find(name[2]); ok {
			t.Errorf("%s: %v, but it is here", vs.URL, err)
		}
	}
	// 1,217 complete ones, and 5 from code systems of which R4 has only an example or a fragment.
	if expanded != 1222 || partly != 5 {
		t.Errorf("%d value sets expand, %d of them partly; want 1222 and 5", expanded, partly)
	}
}

func TestCoreExpansionsAreComplete(t *testing.T) {
	// In R4, the code systems of these two value sets have no concepts.
	empty := []string{"http://hl7.org/fhir/ValueSet/message-events", "http://terminology.hl7.org/ValueSet/v3-policyHolderRole"}
	l := coreLibrary(t)
	for _, vs := range l.set.ValueSets.List {
		x, err := l.expanding(nil).Codes(vs)
		if err != nil {
			continue
		}
		if len(x.Entries) == 0 != slices.Contains(empty, vs.URL) {
			t.Errorf("%s has %d codes", vs.URL, len(x.Entries))
		}
		for _, e := range x.Entries {
			if len(l.set.Code(e)) == 0 {
				t.Errorf("%s has an empty code", vs.URL)
			}
		}
	}
}

// BenchmarkExpandUncached measures expansion without a cache.
func BenchmarkExpandUncached(b *testing.B) {
	l := coreLibrary(b)
	vs, _ := l.set.ValueSets.Find("http://hl7.org/fhir/ValueSet/relatedperson-relationshiptype")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewEvaluator(l.set, new(Rules), nil).Evaluate(vs); err != nil {
			b.Fatal(err)
		}
	}
}

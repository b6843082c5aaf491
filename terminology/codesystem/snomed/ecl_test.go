package snomed

import (
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/snomed/snomedtest"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// TestFindWords checks that the search index finds each concept by the beginnings of the words of its texts.
func TestFindWords(t *testing.T) {
	s := systemOf(t, synthetic)
	c := newECLContent(s.snapshot)
	free := func(int) error { return nil }
	for concept := uint32(0); concept < uint32(s.Len()); concept += 7 {
		for _, text := range s.AppendTexts(nil, codesystem.ConceptAt(concept)) {
			words := strings.Fields(textindex.Fold(string(text.Value)))
			for i, word := range words {
				words[i] = word[:(len(word)+1)/2]
			}
			found, ok, err := c.FindWords(words, free)
			if !ok || err != nil || !found.Has(concept) {
				t.Fatalf("%d is not found by %q", concept, words)
			}
			if found.Count() > s.Len()/2 {
				t.Errorf("%q finds %d concepts", words, found.Count())
			}
		}
	}
}

// TestConstraints checks that constraints see the content of an edition. The evaluator has its own tests.
func TestConstraints(t *testing.T) {
	s := systemOf(t, snomedtest.Edition{Concepts: 120, Swedish: true, Identifiers: true})
	inactive, replacement := snomedtest.Concept(23), snomedtest.Concept(22)
	for _, test := range []struct {
		constraint string
		want       []string
	}{
		{"<! 410662002", []string{snomedtest.FindingSite, snomedtest.AssociatedWith, snomedtest.Strength}},
		{"* : " + snomedtest.Strength + " = #45", []string{snomedtest.Concept(45)}},
		{"^ 900000000000526001 {{ M targetComponentId = " + replacement + " }}", []string{inactive}},
		{"^ " + snomedtest.ICD10Map + ` {{ M mapTarget = "P02.0" }}`, []string{snomedtest.Concept(2)}},
		{replacement + " {{ + HISTORY-MIN }}", []string{replacement}}, // only SAME AS is in the minimum profile
		{replacement + " {{ + HISTORY-MAX }}", []string{replacement, inactive}},
		{`< 410662002 {{ D term = "strength" }}`, []string{snomedtest.Strength}},
		{`<< 404684003 {{ D term = "sjukdom clin", language = sv }}`, []string{snomedtest.ClinicalFinding}},
		{`* {{ D term = "definition of", typeId = 900000000000550004 }} {{ C moduleId = ` + snomedtest.SwedishModule + " }}", nil},
		{"* {{ C effectiveTime < \"20260801\" }}", nil},
		{"<! 410662002 {{ D term = \"strength\", dialectId = 900000000000509007 (900000000000548007) }}", []string{snomedtest.Strength}},
		{"LOINC#7-7 OR loinc#\"27-7\"", []string{snomedtest.Concept(7), snomedtest.Concept(27)}},
		{"^ " + snomedtest.LOINCScheme + " OR (^ * AND " + snomedtest.Concept(7) + ")", nil}, // a scheme is not a reference set
	} {
		set, ok, err := s.EvaluateFilter("constraint", "=", test.constraint, func(int) error { return nil })
		var got []string
		set.Each(func(concept uint32) { got = append(got, string(s.snapshot.code(concept))) })
		slices.Sort(got)
		slices.Sort(test.want)
		if !ok || err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, %v, want %v", test.constraint, got, err, test.want)
		}
	}
	for constraint, want := range map[string]string{
		"< 12": "Invalid ECL expression '< 12'", "< 1234567890": "1234567890", "LOINC#17-7": "LOINC#17-7 is not part", "X#7-7": "X#7-7 is not part",
	} {
		if _, _, err := s.EvaluateFilter("constraint", "=", constraint, func(int) error { return nil }); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", constraint, err, want)
		}
	}
}

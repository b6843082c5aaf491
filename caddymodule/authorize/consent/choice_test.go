package consent_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// names returns the names of a choice and of all its parts.
func names(c *consent.Choice) []string {
	all := []string{c.Name}
	if read, write, both := c.Permissions(); both && !strings.Contains(c.Name, " ") {
		all = append(all, read, write)
	}
	for i := range c.Parts {
		all = append(all, names(&c.Parts[i])...)
	}
	return all
}

// allExcept returns a function for which all choices are ticked except the given ones.
func allExcept(unticked ...string) func(string) bool {
	return func(name string) bool { return !slices.Contains(unticked, name) }
}

const (
	byCondition   = "?category=http://terminology.hl7.org/CodeSystem/condition-category|"
	byObservation = "?category=http://terminology.hl7.org/CodeSystem/observation-category|"
	byUSCore      = "?category=http://hl7.org/fhir/us/core/CodeSystem/"
)

func TestGrantedScopes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		item     string
		unticked string // unticked parts of the item, separated by commas
		want     string
	}{
		{"all", "patient/Condition.rs", "", "patient/Condition.rs"},
		{"all, in SMART 1", "patient/*.read", "", "patient/*.read"},
		{"all, of one that is narrow", "patient/Condition.rs" + byCondition + "problem-list-item", "", "patient/Condition.rs" + byCondition + "problem-list-item"},
		{"all, as it was written", "patient/Observation.rs?category=laboratory%7C", "", "patient/Observation.rs?category=laboratory%7C"},
		{"all, of another scope", "demo.read", "", "demo.read"},
		{"not the item", "patient/Condition.rs", "the item", ""},
		{"not the item, of another scope", "demo.read", "the item", ""},
		{"two categories of three", "patient/Condition.rs", " health-concern", "patient/Condition.rs" + byCondition + "problem-list-item patient/Condition.rs" + byCondition + "encounter-diagnosis"},
		{"one category", "user/Condition.r", " problem-list-item, encounter-diagnosis", "user/Condition.r" + byUSCore + "condition-category|health-concern"},
		{"one category, SMART 1 syntax", "patient/Observation.read", " vital-signs, social-history, survey, sdoh, clinical-test", "patient/Observation.rs" + byObservation + "laboratory"},
		{"no category", "patient/Condition.rs", " problem-list-item, health-concern, encounter-diagnosis", ""},
		{"reading", "patient/Observation.cruds", " write", "patient/Observation.rs"},
		{"writing", "patient/Observation.cruds", " read", "patient/Observation.cud"},
		{"reading, SMART 1 syntax", "patient/Observation.*", " write", "patient/Observation.read"},
		{"writing, SMART 1 syntax", "patient/*.*", " read", "patient/*.write"},
		{"neither", "patient/Observation.cruds", " read, write", ""},
		{"reading one category", "patient/Condition.crus", " write, problem-list-item, health-concern", "patient/Condition.rs" + byCondition + "encounter-diagnosis"},
		{"two kinds", "patient/*.rs", kindsExcept("AllergyIntolerance", "reports"), "patient/AllergyIntolerance.rs patient/DiagnosticReport.rs patient/ImagingStudy.rs patient/Specimen.rs"},
		{"a kind, in SMART 1", "user/*.read", kindsExcept("Immunization"), "user/Immunization.read"},
		{"a kind, and a category of another", "patient/*.rs", kindsExcept("Condition", "Observation") + ", Observation vital-signs, Observation social-history, Observation survey, Observation sdoh, Observation clinical-test",
			"patient/Condition.rs patient/Observation.rs" + byObservation + "laboratory"},
		{"reading a kind", "patient/*.cruds", kindsExcept("Device") + ", write", "patient/Device.rs"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			choice, unticked := consent.NewChoice(tt.item), []string{}
			for name := range strings.SplitSeq(tt.unticked, ",") {
				unticked = append(unticked, tt.item+" "+strings.TrimSpace(name))
			}
			if tt.unticked == "the item" {
				unticked = []string{tt.item}
			}
			granted := choice.GrantedScopes(allExcept(unticked...))
			if got := strings.Join(granted, " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func kindsExcept(kinds ...string) string {
	all := consent.NewChoice("patient/*.rs")
	var remaining []string
	for _, part := range all.Parts {
		if kind := part.Kind(); !slices.Contains(kinds, kind) {
			remaining = append(remaining, kind)
		}
	}
	return " " + strings.Join(remaining, ", ")
}

// randomItem returns a random item that a client may request.
func randomItem(random *rand.Rand) string {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	item := pick("patient/", "user/") + pick("*", "*", "Condition", "Observation", "Patient", "Basic") + "."
	if v1 := pick("", "", "read", "write", "*"); v1 != "" {
		return item + v1
	}
	letters := ""
	for letters == "" {
		for _, letter := range "cruds" {
			letters += pick("", string(letter))
		}
	}
	return item + letters + pick("", "", "", "?category=laboratory", "?_tag=a&_tag=b")
}

// Whichever choices are ticked, the item covers the allowed scopes, and they can be granted to a client that has the item.
// Unticking more choices never allows more.
func TestGrantedScopesAreCovered(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		item := randomItem(random)
		choice := consent.NewChoice(item)
		more, less := map[string]bool{}, map[string]bool{}
		for _, name := range names(&choice) {
			more[name] = random.IntN(8) > 0
			less[name] = more[name] && random.IntN(8) > 0
		}
		granted, fewer := choice.GrantedScopes(func(name string) bool { return more[name] }), choice.GrantedScopes(func(name string) bool { return less[name] })
		checkCovered(t, granted, []string{item})
		checkCovered(t, fewer, granted)
		if typed := strings.Replace(item, "/Condition", "/*", 1); !strings.Contains(typed, "?") {
			checkCovered(t, granted, []string{typed})
		}
		names := choice.TickedNames(granted)
		if again := choice.GrantedScopes(func(name string) bool { return names[name] }); !slices.Equal(again, granted) {
			t.Errorf("%s: gave %q, and is offered %q the next time", item, granted, again)
		}
	}
}

func checkCovered(t *testing.T, scopes, by []string) {
	t.Helper()
	if again, err := smart.Grant(scopes, by); err != nil || !slices.Equal(again, scopes) {
		t.Errorf("%q of %q: granted %q, %v", scopes, by, again, err)
	}
}

// The names of an item's choices are unique.
func TestChoiceNamesAreUnique(t *testing.T) {
	t.Parallel()
	choice := consent.NewChoice("patient/*.cruds")
	all := names(&choice)
	slices.Sort(all)
	if unique := slices.Compact(slices.Clone(all)); len(unique) != len(all) || len(all) < 25 {
		t.Errorf("%q", all)
	}
}

package access

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// samples are resources that refer to patient a, patient b, both, neither, an Organization or an Observation. %q is the type.
var samples = []struct{ name, text string }{
	{"own", `{"resourceType":%q,"id":"x",` + refersTo("Patient/a") + `}`},
	{"another's", `{"resourceType":%q,"id":"x",` + refersTo("Patient/b") + `}`},
	{"of both", `{"resourceType":%q,"id":"x",` + refersTo("Patient/a") + `,"performer":[{"reference":"Patient/b"}]}`},
	{"nobody's", `{"resourceType":%q,"id":"x"}`},
	{"of everyone's", `{"resourceType":%q,"id":"x",` + refersTo("Organization/o") + `}`},
	{"of a record", `{"resourceType":%q,"id":"x",` + refersTo("Observation/o") + `}`},
}

// refersTo returns the members of the tested types, each with the same reference.
func refersTo(to string) string {
	return fmt.Sprintf(`"subject":{"reference":%[1]q},"patient":{"reference":%[1]q},"securityContext":{"reference":%[1]q},"target":[{"reference":%[1]q}]`, to)
}

// ruleResults returns the results of all fields of a rule for a type. Denials are omitted.
func ruleResults(t *testing.T, r *Rule, resourceType string) string {
	t.Helper()
	s := NewTypeRules(TypeRules{resourceType: r})
	var results []string
	say := func(ok bool, text string) {
		if ok {
			results = append(results, text)
		}
	}
	rights := New(Holder{Scope: "patient/*.cruds", Patient: "a"}, s)
	var permits smart.Permission
	for _, p := range []smart.Permission{smart.Create, smart.Read, smart.Update, smart.Delete, smart.Search} {
		if len(rights.GrantsFor(resourceType, p)) > 0 {
			permits |= p
		}
	}
	say(r != nil && r.AppliesTo(resourceType), "fits")
	say(permits != 0, permits.String())
	for _, sample := range samples {
		res := parse(t, fmt.Sprintf(sample.text, resourceType))
		g := rights.Grants[0]
		v := rights.Covers(g, res)
		say(v.Covered, "reads "+strings.TrimSpace(sample.name+" "+neededResources(v)))
		v = rights.CoversNew(g, res)
		say(v.Covered, "writes "+strings.TrimSpace(sample.name+" "+neededResources(v)))
	}
	for _, c := range s.Confine(Search{Type: resourceType, Patient: "a"}) {
		results = append(results, "searches "+smart.EncodeParameters(c.Parameters))
	}
	say(s.HasExactTotal(resourceType), "counted")
	say(s.IsPatientOnly(resourceType), "own")
	say(s.IsForAllPatients(resourceType), "everyone's")
	say(s.MayBeReferenced(resourceType), "named")
	say(!s.MayNeedLookups(resourceType), "by itself")
	return strings.Join(results, "; ")
}

func TestRules(t *testing.T) {
	t.Parallel()
	const observations = "searches performer=Patient%2Fa; searches subject=Patient%2Fa; "
	for _, tt := range []struct {
		rule               *Rule
		resourceType, want string
	}{
		{everyoneRule, "Observation", "fits; rs; reads own; reads another's; reads of both; reads nobody's; reads of everyone's; reads of a record; " +
			"searches ; counted; everyone's; named; by itself"},
		{unassignedRule, "Device", "fits; cruds; reads own; writes own; reads of both; writes of both; reads nobody's; " +
			"searches patient=Patient%2Fa; searches patient%3Amissing=true; counted; by itself"},
		{unassignedRule, "Observation", "fits; cruds; reads own; writes own; reads of both; reads nobody's; " +
			"searches patient=Patient%2Fa; searches patient%3Amissing=true; counted; by itself"},
		{securityContextRule, "Binary", "fits; cruds; reads own; writes own; reads another's Patient/b; writes another's Patient/b; reads of both; writes of both; " +
			"reads of everyone's Organization/o; reads of a record Observation/o; writes of a record Observation/o; own"},
		{aboutRule, "Provenance", "fits; cruds; reads own; writes own; reads another's Patient/b; writes another's Patient/b; reads of both; writes of both; " +
			"reads of a record Observation/o; writes of a record Observation/o; searches patient=Patient%2Fa; own"},
		{aboutRule, "Bundle", "fits; cruds; own"},
		{aboutRule, "Observation", "fits; cruds; reads own; writes own; reads of both; " + observations + "own; by itself"},
		{aloneRule, "Observation", "fits; cruds; reads own; writes own; " + observations + "own; by itself"},
		{patientRule, "Observation", "fits; cruds; reads own; writes own; reads of both; writes of both; searches patient=Patient%2Fa; own; by itself"},
		{patientRule, "Organization", "searches patient=Patient%2Fa; own; by itself"},
		{closedRule, "Observation", "fits"},
		{compartmentRule, "Observation", "fits; cruds; reads own; writes own; reads of both; " + observations + "counted; own; by itself"},
		{compartmentRule, "ValueSet", "counted; own; named; by itself"},
	} {
		t.Run(tt.rule.name+" "+tt.resourceType, func(t *testing.T) {
			t.Parallel()
			if got := ruleResults(t, tt.rule, tt.resourceType); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for _, r := range rules {
		if FindRule(r.name) != r {
			t.Errorf("%q is the name of two rules", r.name)
		}
	}
}

// An empty rule denies everything, for every type.
func TestEmptyRule(t *testing.T) {
	t.Parallel()
	for _, resourceType := range interaction.Types() {
		for name, r := range map[string]*Rule{"an empty rule": {}, "no rule of that name": FindRule("none")} {
			if got := ruleResults(t, r, resourceType); got != "" {
				t.Errorf("%s, %s: %s", name, resourceType, got)
			}
		}
	}
	if n := reflect.TypeFor[Rule]().NumField(); n != 11 {
		t.Errorf("a rule has %d fields: let answers ask each question", n)
	}
}

// The table in docs/reference/resources.md matches the rules and the types to which they apply by default.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/resources.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n| rule | types | a bound scope covers |\n")
	if table, _, _ = strings.Cut(table, "\n\n"); !found {
		t.Fatal("docs/reference/resources.md has no table of rules")
	}
	documented := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		documented[row[1]] = strings.Split(row[2], ", ")
	}
	actual := map[string][]string{"patient": {"none by default"}, "closed": {"all other types"}}
	for _, of := range slices.Sorted(maps.Keys(defaultTypeRules)) {
		actual[defaultTypeRules[of].name] = append(actual[defaultTypeRules[of].name], of)
	}
	for _, name := range RuleNames() {
		if got, want := documented[name], actual[name]; !slices.Equal(got, want) {
			t.Errorf("the page has %q for %s, want %q", got, name, want)
		}
	}
	if len(documented) != len(RuleNames()) {
		t.Errorf("the page has the rules %q, want %q", slices.Sorted(maps.Keys(documented)), RuleNames())
	}
}

package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/gatewaytest"
)

var (
	requirementRow   = regexp.MustCompile(`(?m)^\| ([0-9, ]+) \| [^|]+ \| (met|not applicable|open): (.+) \|$`)
	requirementTests = regexp.MustCompile("^`Test[A-Za-z0-9]+`(, `Test[A-Za-z0-9]+`)*$")
)

// docs/evidence/smart-requirements.md has each of SMART App Launch's requirements once: with tests
// that exist, with a sentence why it is not applicable, or as open.
func TestSMARTRequirements(t *testing.T) {
	t.Parallel()
	document := gatewaytest.ReadFile(t, "../../docs/evidence/smart-requirements.md")
	numbers := gatewaytest.ReadFile(t, "../../docs/evidence/smart-requirements.txt")
	seen := map[string]int{}
	sources := testSources(t)
	for _, row := range requirementRow.FindAllStringSubmatch(document, -1) {
		for number := range strings.SplitSeq(row[1], ", ") {
			seen[number]++
		}
		checkRequirement(t, sources, row[2], row[3])
	}
	for number := range strings.FieldsSeq(numbers) {
		if seen[number] != 1 {
			t.Errorf("requirement %s is there %d times", number, seen[number])
		}
		delete(seen, number)
	}
	for number := range seen {
		t.Errorf("there is no requirement %s", number)
	}
}

func checkRequirement(t *testing.T, sources []string, state, reason string) {
	t.Helper()
	switch {
	case state == "met" && !requirementTests.MatchString(reason):
		t.Errorf("%s: these are no names of tests", reason)
	case state == "not applicable" && !strings.HasSuffix(reason, "."):
		t.Errorf("%s: this is no sentence", reason)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(reason, -1) {
		declares := func(source string) bool { return strings.Contains(source, "\nfunc "+name[1]+"(") }
		if !slices.ContainsFunc(sources, declares) {
			t.Errorf("there is no test %s", name[1])
		}
	}
}

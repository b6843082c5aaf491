package api

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// What a modifier extension changes is not known, so that a definition with one is not made use of.
func TestModifierExtensions(t *testing.T) {
	const modifier = `"modifierExtension":[{"url":"http://x/not","valueBoolean":true}]`
	system := func(member, inConcept string) string {
		return `{"resourceType":"CodeSystem","url":"http://x/s","version":"1","status":"active","content":"complete"` + member +
			`,"concept":[{"code":"a"` + inConcept + `}]}`
	}
	valueSet := func(member, compose, include string) string {
		return `{"resourceType":"ValueSet","url":"http://x/v","status":"active"` + member + `,"compose":{"include":[{"system":"http://x/s"` + include + `}]` + compose + `}}`
	}
	for _, test := range []struct{ name, system, valueSet string }{
		{"of the value set", system("", ""), valueSet(","+modifier, "", "")},
		{"implicit rules", system("", ""), valueSet(`,"implicitRules":"http://x/not"`, "", "")},
		{"of the code system, implicit rules", system(`,"implicitRules":"http://x/not"`, ""), valueSet("", "", "")},
		{"of compose", system("", ""), valueSet("", ","+modifier, "")},
		{"of an include", system("", ""), valueSet("", "", ","+modifier)},
		{"of an exclude", system("", ""), valueSet("", `,"exclude":[{"system":"http://x/s",`+modifier+`}]`, "")},
		{"of a listed concept", system("", ""), valueSet("", "", `,"concept":[{"code":"a",`+modifier+`}]`)},
		{"of a filter", system("", ""), valueSet("", "", `,"filter":[{"property":"code","op":"=","value":"a",`+modifier+`}]`)},
		{"of the code system", system(","+modifier, ""), valueSet("", "", "")},
		{"of a concept", system("", ","+modifier), valueSet("", "", "")},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := libraryOf(t, test.system, test.valueSet)
			if e := refused(t, l, "url", "http://x/v"); e.Status != http.StatusUnprocessableEntity || !errors.Is(e, outcome.ErrIncomplete) || !strings.Contains(e.Text, "http://x/not") {
				t.Errorf("expand: got %d %s", e.Status, e.Text)
			}
			if w, _ := call(t, &Handler{Library: l}, "GET", "/ValueSet/$validate-code?url=http://x/v&system=http://x/s&code=a", ""); w.Code != http.StatusUnprocessableEntity {
				t.Errorf("validate: got %d %s", w.Code, w.Body)
			}
			if !strings.HasPrefix(test.name, "of the code system") {
				return
			}
			for _, path := range []string{"$lookup?system=http://x/s&code=a", "$validate-code?url=http://x/s&code=a"} {
				if w, _ := call(t, &Handler{Library: l}, "GET", "/CodeSystem/"+path, ""); w.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s: got %d %s", path, w.Code, w.Body)
				}
			}
		})
	}
	if got := expand(t, libraryOf(t, system("", ""), valueSet("", "", "")), "url", "http://x/v"); len(got.codes()) != 1 {
		t.Errorf("without: got %q", got.codes())
	}
}

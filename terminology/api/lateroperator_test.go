package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// laterFilter is a filter of R5 or R6 as HL7's convertor writes it into R4: the operator that R4 lacks is an extension, and
// the value set says by its implicit rules that a code is not where it should be.
func laterFilter(release, op, value string) string {
	return fmt.Sprintf(`"filter":[{"property":"concept","_op":{"extension":[{"url":"http://x/other","valueCode":"is-a"},
		{"url":"http://hl7.org/fhir/%s/StructureDefinition/extension-ValueSet.compose.include.filter.op","valueCode":%q}]},"value":%q}]`, release, op, value)
}

const omitted = `{"resourceType":"ValueSet","url":"http://x/vs","status":"active","implicitRules":"https://hl7.org/fhir/implicit-rules/omitted-mandatory-interversion-code",`

// An operator of R5 counts wherever a value set is read.
func TestLaterOperators(t *testing.T) {
	const animal = `{"system":"http://x/animals",`
	childOf, leaf := animal+laterFilter("5.0", "child-of", "animal")+`}`, animal+laterFilter("5.0", "descendent-leaf", "animal")+`}`
	for _, test := range []struct{ name, rest, want string }{
		{"in an include", `"compose":{"include":[` + childOf + `]}}`, "mammal flyer fly"},
		{"in an exclude", `"compose":{"include":[` + leaf + `],"exclude":[` + childOf + `]}}`, "dog bat"},
		{"in what it contains", `"contained":[{"resourceType":"ValueSet","id":"in","compose":{"include":[` + leaf + `]}}],"compose":{"include":[{"valueSet":["#in"]}]}}`, "dog bat fly"},
		{"beside one of R4", `"compose":{"include":[` + animal + `"filter":[{"property":"concept","_op":{"extension":[{"valueCode":"child-of",
			"url":"http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.compose.include.filter.op"}]},"op":"is-a","value":"animal"}]}]}}`, "mammal flyer fly"},
		{"of the filter", `"compose":{"include":[` + animal + `"filter":[{"property":"concept","extension":[{"valueCode":"child-of",
			"url":"http://hl7.org/fhir/5.0/StructureDefinition/extension-ValueSet.compose.include.filter.op"}],"value":"animal"}]}]}}`, "mammal flyer fly"},
	} {
		t.Run(test.name, func(t *testing.T) {
			definition := omitted + test.rest
			wantCodes(t, expand(t, libraryOf(t, animals, definition), "url", "http://x/vs"), test.want)
			h := &Handler{Library: libraryOf(t, animals)}
			for kind, body := range map[string]string{"json": definition, "xml": asXML(t, definition)} {
				w, _ := call(t, h, "POST", "/ValueSet/$expand?excludeNested=true&_format=json", body, "Content-Type", "application/fhir+"+kind)
				var got expanded
				if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
					t.Fatal(err)
				}
				wantCodes(t, got, test.want)
			}
		})
	}
}

// A filter is not read as another one: what is not known is refused.
func TestLaterFiltersAreNotGuessed(t *testing.T) {
	const nested = `{"url":"http://hl7.org/fhir/6.0/StructureDefinition/extension-ValueSet.compose.include.filter.filter","extension":[{"url":"op","valueCode":"="}]}`
	for name, filter := range map[string]string{
		"an operator of R6":        laterFilter("6.0", "property-value-of", "animal"),
		"an operator without code": laterFilter("5.0", "", "animal"),
		"no operator":              `"filter":[{"property":"concept","value":"animal"}]`,
		"a filter within":          `"filter":[{"property":"concept","op":"is-a","value":"animal","extension":[` + nested + `]}]`,
	} {
		l := libraryOf(t, animals, omitted+`"compose":{"include":[{"system":"http://x/animals",`+filter+`}]}}`)
		if e := refused(t, l, "url", "http://x/vs"); e.Status != http.StatusUnprocessableEntity || !errors.Is(e, outcome.ErrIncomplete) {
			t.Errorf("%s: got %d %s", name, e.Status, e.Text)
		}
	}
}

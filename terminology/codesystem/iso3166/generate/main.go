// Command generate builds the tables of countries, subdivisions and former countries.
package main

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{
		"countries.json.zst":    countries,
		"subdivisions.json.zst": subdivisions,
		"former.json.zst":       formerCountries,
	}.Main()
}

const iso3166Package = "iso-3166@4.4.0"

// countries returns the codes of ISO 3166-1: alpha-2, alpha-3, numeric, and user-assigned.
func countries(p generate.Packages) (generate.CodeSystem, error) {
	list, err := p.Objects(iso3166Package, "1.js")
	if err != nil {
		return generate.CodeSystem{}, err
	}
	names, err := p.CountryNames()
	if err != nil {
		return generate.CodeSystem{}, err
	}
	var concepts []*generate.Concept
	for _, kind := range []string{"alpha2", "alpha3", "numeric"} {
		var codes []*generate.Concept
		for _, country := range list {
			c := &generate.Concept{Code: country[kind], Display: country["name"]}
			for _, language := range generate.Languages {
				for _, name := range names[language][country["alpha2"]] {
					c.AddName(language, name)
				}
			}
			codes = append(codes, c)
		}
		concepts = append(append(concepts, generate.SortByCode(codes)...), userAssignedCodes(kind)...)
	}
	return generate.NewTable(concepts, "user-assigned"), nil
}

// userAssignedCodes returns the user-assigned codes of the given kind (ISO 3166-1, 8.1.3): AA, QM to QZ, XA to XZ and ZZ, the
// same with a third letter, or the numbers from 900.
func userAssignedCodes(kind string) (concepts []*generate.Concept) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	add := func(code string) {
		concepts = append(concepts, &generate.Concept{Code: code, Display: "User-assigned", Property: []generate.Property{{Code: "user-assigned", ValueBoolean: true}}})
	}
	if kind == "numeric" {
		for n := 900; n <= 999; n++ {
			add(strconv.Itoa(n))
		}
		return concepts
	}
	for code := range strings.FieldsSeq("AA QM QN QO QP QQ QR QS QT QU QV QW QX QY QZ " + "X" + strings.Join(strings.Split(letters, ""), " X") + " ZZ") {
		if kind == "alpha2" {
			add(code)
			continue
		}
		for _, third := range letters {
			add(code + string(third))
		}
	}
	return concepts
}

// subdivisions returns the codes of ISO 3166-2.
func subdivisions(p generate.Packages) (generate.CodeSystem, error) {
	list, err := p.Objects(iso3166Package, "2.js")
	concepts, parents := generate.ParseConcepts(list)
	return generate.NewTable(generate.NestConcepts(concepts, parents)), err
}

// formerCountryPattern matches the code and name of a former country.
var formerCountryPattern = regexp.MustCompile(`(?s)alpha4: '(\w+)'.*?name: (?:'([^']*)'|"([^"]*)")`)

// formerCountries returns the codes of ISO 3166-3.
func formerCountries(p generate.Packages) (generate.CodeSystem, error) {
	text, err := p.NPM(iso3166Package, "3.js")
	concepts := []*generate.Concept{}
	for _, m := range formerCountryPattern.FindAllSubmatch(text, -1) {
		concepts = append(concepts, &generate.Concept{Code: string(m[1]), Display: string(m[2]) + string(m[3])})
	}
	return generate.NewTable(generate.SortByCode(concepts)), err
}

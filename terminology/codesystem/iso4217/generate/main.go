// Command generate builds the table of currencies.
package main

import (
	"encoding/xml"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem/internal/generate"
)

func main() {
	generate.Readers{"currencies.json.zst": currencies}.Main()
}

// currencies returns the codes of ISO 4217 and their number of decimal digits.
func currencies(p generate.Packages) (generate.CodeSystem, error) {
	text, err := p.PyPI("iso4217==1.16.20260101", "iso4217/table.xml")
	if err != nil {
		return generate.CodeSystem{}, err
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
	concepts := make(map[string]*generate.Concept) // keyed by code, because the source lists a currency once per country
	for _, row := range list.Rows {
		if row.Code == "" {
			continue
		}
		c := &generate.Concept{Code: row.Code, Display: strings.TrimSpace(row.Name), Property: []generate.Property{{Code: "numeric", ValueCode: row.Number}}}
		if digits, err := strconv.Atoi(row.Minor); err == nil {
			c.Property = append(c.Property, generate.Property{Code: "minor-units", ValueInteger: &digits})
		}
		concepts[row.Code] = c
	}
	return generate.NewTable(generate.SortByCode(slices.Collect(maps.Values(concepts))), "numeric", "minor-units"), err
}

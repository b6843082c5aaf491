package snomed

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// releaseFormat is Release Format 2. A release contains a snapshot of concepts.
var releaseFormat = definitions.ReleaseFormat{
	Name: "SNOMED CT RF2", Load: load,
	IsMarker: func(file string) bool { return kindOf(file) == conceptFile },
}

func init() { definitions.RegisterReleaseFormat(releaseFormat) }

// content returns the code system of a version of an edition, with its implicit value sets and concept maps.
func content(s *System) *definitions.ReleaseContent {
	e := s.snapshot.edition
	return &definitions.ReleaseContent{
		Sources: []codesystem.Source{{
			URL: URL, Name: "SNOMED CT", Version: e.versionURI(), CaseSensitive: true, System: s,
			IsDefaultEdition: e.module == coreModule, EditionName: e.name(), ReportsReason: true,
			Copyright: "SNOMED CT © International Health Terminology Standards Development Organisation (SNOMED International), used under its license (https://www.snomed.org/get-snomed)",
			Members: `{"id":"snomed-` + strconv.FormatUint(uint64(e.module), 10) + "-" + e.date.String() + `","title":"SNOMED CT, ` + e.name() + ", " + e.date.FHIR() + `","publisher":"SNOMED International",` +
				`"date":"` + e.date.FHIR() + `","hierarchyMeaning":"is-a","compositional":true,"versionNeeded":false}`,
		}},
		ValueSet:   s.snapshot.valueSet,
		ConceptMap: s.snapshot.conceptMap,
	}
}

// valueSet returns an implicit value set (Using SNOMED CT with HL7 Standards, R4 §4.2.3).
func (s *snapshot) valueSet(address string) (vs definitions.ImpliedValueSet, ok bool) {
	base, query, found := strings.Cut(address, "?fhir_vs")
	version, ok := s.edition.versionOf(base)
	if !found || !ok {
		return vs, false
	}
	vs.Include = definitions.ConceptSet{System: URL, Version: version}
	kind, value, _ := strings.Cut(strings.TrimPrefix(query, "="), "/")
	switch {
	case query == "":
		vs.Name, vs.Title = "ALLSNOMEDCT", "SNOMED CT Reference Set (All of SNOMED CT)"
		return vs, true
	case query == "=refset":
		vs.Title = "SNOMED CT reference sets"
		vs.Include.Filters = []definitions.Filter{{Property: propertyRefset, Op: "exists", Value: "true"}}
		return vs, true
	case kind == "isa":
		vs.Title = "SNOMED CT concept " + value + " and its descendants"
		vs.Include.Filters = []definitions.Filter{{Property: "concept", Op: "is-a", Value: value}}
		_, ok = s.table.Locate([]byte(value)) // no expression and no term
		return vs, ok
	case kind == "refset":
		vs.Title = "SNOMED CT reference set " + value
		vs.Include.Filters = []definitions.Filter{{Property: "concept", Op: "in", Value: value}}
		return vs, s.refset(value) != nil
	case kind == "ecl":
		if text, err := url.PathUnescape(value); err == nil {
			value = text
		}
		vs.Title = "SNOMED CT concepts " + value
		vs.Include.Filters = []definitions.Filter{{Property: propertyConstraint, Op: "=", Value: value}}
		return vs, value != ""
	}
	return vs, false
}

package loinc

import (
	"path"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// releaseFormat is the format of LOINC releases. A release contains the table of terms.
var releaseFormat = definitions.ReleaseFormat{Name: "LOINC", IsMarker: isMarker, Load: load}

func init() { definitions.RegisterReleaseFormat(releaseFormat) }

func isMarker(file string) bool { return strings.EqualFold(path.Base(file), "Loinc.csv") }

// content returns what a version of LOINC adds to the definitions.
func content(s *System) *definitions.ReleaseContent {
	return &definitions.ReleaseContent{
		Sources: []codesystem.Source{{
			URL: URL, Name: "LOINC", Version: s.version, System: s,
			Copyright: "This material contains content from LOINC (http://loinc.org). LOINC is copyright © Regenstrief Institute, Inc. and the " +
				"Logical Observation Identifiers Names and Codes (LOINC) Committee and is available at no cost under the license at " +
				"http://loinc.org/license. LOINC® is a registered United States trademark of Regenstrief Institute, Inc.",
			Members: `{"id":"loinc-` + s.version + `","experimental":false,"publisher":"Regenstrief Institute, Inc.","hierarchyMeaning":"is-a","compositional":false,"versionNeeded":false}`,
		}},
		ValueSet: s.valueSet,
	}
}

// valueSet returns an implicit value set: all codes, the answers of a list (LL), the descendants of a part (LP) or the terms of a
// group (LG) (Using LOINC with HL7 Standards, "LOINC Implicit Value Sets").
func (s *System) valueSet(url string) (vs definitions.ImpliedValueSet, ok bool) {
	vs = definitions.ImpliedValueSet{HasSystemVersion: true, Include: definitions.ConceptSet{System: URL}}
	if url == URL+"/vs" {
		vs.Name = "LOINCAllCodes"
		return vs, true
	}
	code, ok := strings.CutPrefix(url, URL+"/vs/")
	if _, found := s.Locate([]byte(code)); !ok || !found {
		return vs, false
	}
	kind := valueSetKinds[code[:2]]
	vs.Name = kind.name + strings.ReplaceAll(code, "-", "_")
	vs.Include.Filters = []definitions.Filter{{Property: kind.property, Op: "=", Value: code}}
	return vs, kind.property != ""
}

// valueSetKinds are the implicit value sets by the prefix of the code.
var valueSetKinds = map[string]struct{ name, property string }{
	"LL": {"LOINCAnswerList", "LIST"},
	"LP": {"LOINCValueSetFor", "ancestor"},
	"LG": {"LOINCGroup", "group"},
}

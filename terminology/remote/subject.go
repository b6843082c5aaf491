package remote

import (
	"errors"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// Subject is what an operation is about, as far as it decides who is asked.
type Subject struct {
	// ValueSet is the canonical of the value set; empty if unknown.
	ValueSet string

	// Systems are the urls of code systems; the first counts most.
	Systems []string
}

// Lacking puts first what an error of package terminology says is missing here: whoever has it can answer.
func (s Subject) Lacking(err error) Subject {
	if failed, ok := errors.AsType[*outcome.Error](err); ok {
		for _, m := range failed.Missing {
			s.Systems = append([]string{m.Canonical}, s.Systems...)
		}
	}
	return s
}

// SubjectOf finds in a question the url of the value set or code system, the systems of codings, and those that a value set
// in the body includes. It skips what cannot be understood, which whoever is asked will refuse.
func SubjectOf(q Question) (s Subject) {
	for i := range q.inputs {
		switch in := &q.inputs[i]; {
		case in.Name == "url" && s.ValueSet == "":
			s.ValueSet = in.Value
		case in.Name == "system" && in.Value != "":
			s.Systems = append(s.Systems, in.Value)
		case in.Name == "valueSet":
			s.addValueSet(in.Resource)
		case in.Complex != nil:
			s.addCodings(in.Complex)
		}
	}
	return s
}

type coding struct {
	System string `json:"system"`
}

// addCodings adds what a Coding or a CodeableConcept names.
func (s *Subject) addCodings(value jsontext.Value) {
	var c struct {
		coding
		Coding []coding `json:"coding"`
	}
	if json.Unmarshal(value, &c, jsontext.AllowDuplicateNames(true)) != nil {
		return
	}
	for _, c := range append(c.Coding, c.coding) {
		if c.System != "" {
			s.Systems = append(s.Systems, c.System)
		}
	}
}

// addValueSet adds what a value set in the request includes. Its own url counts only if a code system implies it.
func (s *Subject) addValueSet(resource jsontext.Value) {
	var vs struct {
		ResourceType string `json:"resourceType"`
		URL          string `json:"url"`
		Compose      struct {
			Include []struct {
				System   string   `json:"system"`
				ValueSet []string `json:"valueSet"`
			} `json:"include"`
		} `json:"compose"`
	}
	if json.Unmarshal(resource, &vs, jsontext.AllowDuplicateNames(true)) != nil || vs.ResourceType != "ValueSet" {
		return
	}
	for _, in := range vs.Compose.Include {
		if in.System != "" {
			s.Systems = append(s.Systems, in.System)
		}
		s.Systems = append(s.Systems, in.ValueSet...)
	}
	if s.ValueSet == "" && strings.Contains(vs.URL, "?fhir_vs") {
		s.ValueSet = vs.URL
	}
}

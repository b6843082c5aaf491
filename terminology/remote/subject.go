package remote

import (
	"errors"
	"mime"
	"net/url"
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

// SubjectOf reads the query string of an operation and, for a POST, its body: the url of the value set or code system,
// the systems of codings, and those that a value set in the body includes. It skips what it cannot understand, which
// whoever is asked will refuse.
func SubjectOf(q Request) Subject {
	var s Subject
	s.addForm(q.Query)
	switch kind, _, _ := mime.ParseMediaType(q.ContentType); {
	case len(q.Body) == 0:
	case kind == "application/x-www-form-urlencoded":
		s.addForm(string(q.Body))
	default:
		s.addResource(q.Body)
	}
	return s
}

func (s *Subject) addForm(query string) {
	values, _ := url.ParseQuery(query) // beside an error, it returns what it understands
	for _, name := range []string{"url", "system"} {
		if value := values.Get(name); value != "" {
			s.addCanonical(name, value)
		}
	}
}

// addCanonical adds the value of a parameter.
func (s *Subject) addCanonical(name, value string) {
	if name == "url" && s.ValueSet == "" {
		s.ValueSet = value
	}
	if name == "system" {
		s.Systems = append(s.Systems, value)
	}
}

// message is a resource, reduced to what names value sets and code systems.
type message struct {
	ResourceType string `json:"resourceType"`
	URL          string `json:"url"`
	Parameter    []struct {
		Name     string         `json:"name"`
		URI      string         `json:"valueUri"`
		URL      string         `json:"valueUrl"`
		Text     string         `json:"valueString"`
		Whole    string         `json:"valueCanonical"`
		Coding   coding         `json:"valueCoding"`
		Concept  codings        `json:"valueCodeableConcept"`
		Resource jsontext.Value `json:"resource"`
	} `json:"parameter"`
	Compose struct {
		Include []struct {
			System   string   `json:"system"`
			ValueSet []string `json:"valueSet"`
		} `json:"include"`
	} `json:"compose"`
}

type coding struct {
	System string `json:"system"`
}

type codings struct {
	Coding []coding `json:"coding"`
}

// addResource adds what Parameters or a value set name.
func (s *Subject) addResource(body []byte) {
	m := parse(body)
	s.addValueSet(m)
	for _, p := range m.Parameter {
		if value := p.URI + p.URL + p.Whole + p.Text; value != "" { // at most one is set
			s.addCanonical(p.Name, value)
		}
		for _, c := range append(p.Concept.Coding, p.Coding) {
			if c.System != "" {
				s.Systems = append(s.Systems, c.System)
			}
		}
		if p.Name == "valueSet" && p.Resource != nil {
			s.addValueSet(parse(p.Resource))
		}
	}
}

func parse(resource []byte) (m message) {
	if err := json.Unmarshal(resource, &m, jsontext.AllowDuplicateNames(true)); err != nil {
		return message{}
	}
	return m
}

// addValueSet adds what a value set in the request includes. Its own url counts only if a code system implies it.
func (s *Subject) addValueSet(m message) {
	if m.ResourceType != "ValueSet" {
		return
	}
	for _, in := range m.Compose.Include {
		if in.System != "" {
			s.Systems = append(s.Systems, in.System)
		}
		s.Systems = append(s.Systems, in.ValueSet...)
	}
	if s.ValueSet == "" && strings.Contains(m.URL, "?fhir_vs") {
		s.ValueSet = m.URL
	}
}

package terminology

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/expansion"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Translation holds the parameters of ConceptMap/$translate, for [Library.Translate].
type Translation struct {
	ConceptMapRef

	// Codings are what to translate: one, or those of a CodeableConcept.
	Codings []parameters.Coding

	// SourceScope and TargetScope are the canonicals of the value sets that the concept map should be between.
	SourceScope, TargetScope string

	// TargetSystem is the code system on the other side; empty for any.
	TargetSystem string

	// Reverse says that the codings are on the target's side of the concept maps.
	Reverse bool

	// Dependencies are other elements that the translation may depend on.
	Dependencies []Dependency

	// Limits bounds how many matches there may be.
	Limits expansion.Limits

	InTermsOfR5 bool // in reverse, Match.Concept is what was asked for, and Match.Source the outcome
	EitherWay   bool // it is unclear which of the two systems is the codings'
}

// ConceptMapRef names a concept map: by id, as a resource, or by url. If all are empty, any concept map will do.
type ConceptMapRef struct {
	// ID is the id of the resource.
	ID string

	// ConceptMap is the concept map itself, in JSON.
	ConceptMap jsontext.Value

	// URL is the canonical, and Version the version.
	URL, Version string
}

// isNamed reports whether a concept map of the library is named.
func (m *ConceptMapRef) isNamed() bool { return m.ID != "" || m.ConceptMap == nil && m.URL != "" }

// Dependency is another element with its values: one that a translation depends on, or produces.
type Dependency struct {
	// Element is the url of the element.
	Element string

	// Values are its values. One that is no code has only a Code.
	Values []parameters.Coding
}

// TranslationResult says what a concept is in other code systems.
type TranslationResult struct {
	// Found says that there is a translation.
	Found bool

	// Message tells people why there is none.
	Message string

	// Matches are what concept maps say, including that there is no translation.
	Matches []Match

	// Missing are the concept maps that could change the result.
	Missing []outcome.Missing
}

// Match is what a concept map says of a concept.
type Match struct {
	// Equivalence is a code of http://hl7.org/fhir/concept-map-equivalence.
	Equivalence string

	// Concept is the translation; nil if there is none.
	Concept *parameters.Coding

	// Source is the other side of a match in reverse, if the request uses R5's names; else nil.
	Source *parameters.Coding

	// Products are elements that the translation also produces, DependsOn those that it depends on.
	Products, DependsOn []Dependency

	// Maps are the canonicals of the concept maps: the one searched, and those that it referred to.
	Maps []string

	// SourceComment and TargetComment are the concept map's comments on the two sides.
	SourceComment, TargetComment string
}

func (q *Translation) applies(m *definitions.ConceptMap) bool {
	if q.URL != "" && !m.Definition.IsNamed(outcome.Canonical(q.URL, q.Version)) {
		return false
	}
	return isScope(m.SourceScope, q.SourceScope) && isScope(m.TargetScope, q.TargetScope)
}

// isScope reports whether a value set of a concept map can be the one asked for.
func isScope(has, wanted string) bool {
	url, version := outcome.Split(has)
	wantedURL, wantedVersion := outcome.Split(wanted)
	return has == "" || wanted == "" || url == wantedURL && (version == "" || wantedVersion == "" || definitions.MatchesVersion(version, wantedVersion))
}

// isAbout reports whether a group maps between the systems of the request.
func (q *Translation) isAbout(g *definitions.MapGroup, c *parameters.Coding) bool {
	own, version, other := g.Source, g.SourceVersion, g.Target
	if q.Reverse {
		own, version, other = g.Target, g.TargetVersion, g.Source
	}
	if version != "" && c.Version != "" && !definitions.MatchesVersion(c.Version, version) {
		return false
	}
	fits := func(own, other string) bool {
		return (c.System == "" || own == c.System) && (q.TargetSystem == "" || other == q.TargetSystem)
	}
	return fits(own, other) || q.EitherWay && fits(other, own)
}

// AppendJSON appends the Parameters that $translate answers with.
func (r *TranslationResult) AppendJSON(dst []byte) []byte {
	out := parameters.NewWriter(dst)
	for i := range r.Matches {
		out.Parts("match", r.Matches[i].parts()...)
	}
	out.Boolean("result", r.Found)
	out.Optional("message", "valueString", r.Message)
	return out.End()
}

func (m *Match) parts() []parameters.OutPart {
	parts := []parameters.OutPart{parameters.TextPart("equivalence", "valueCode", m.Equivalence), codingPart("concept", m.Concept), codingPart("source", m.Source)}
	parts = append(parts, dependencyParts("product", m.Products)...)
	parts = append(parts, dependencyParts("dependsOn", m.DependsOn)...)
	for i, canonical := range m.Maps {
		name := "used-conceptmap"
		if i == 0 { // R4's name, source, means the source code in reverse to some; R5's is unambiguous
			name = "originMap"
		}
		parts = append(parts, parameters.TextPart(name, "valueCanonical", canonical))
	}
	return append(parts, parameters.TextPart("sourceComment", "valueString", m.SourceComment), parameters.TextPart("targetComment", "valueString", m.TargetComment))
}

// codingPart is a part that is a Coding, left out if it is nil.
func codingPart(name string, c *parameters.Coding) parameters.OutPart {
	if c == nil {
		return parameters.OutPart{}
	}
	return parameters.OutPart{Name: name, Kind: "valueCoding", Value: c.Append(nil)}
}

// dependencyParts returns a part for each value of other elements.
func dependencyParts(name string, list []Dependency) (parts []parameters.OutPart) {
	for i := range list {
		for k := range list[i].Values {
			value := parameters.AppendPart([]byte{'['}, "element", "valueUri", fhirjson.AppendString(nil, list[i].Element))
			value = append(parameters.AppendPart(append(value, ','), "concept", "valueCoding", list[i].Values[k].Append(nil)), ']')
			parts = append(parts, parameters.OutPart{Name: name, Kind: "part", Value: value})
		}
	}
	return parts
}

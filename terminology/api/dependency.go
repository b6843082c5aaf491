package api

import (
	"slices"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// takeDependency reads one parameter dependency, with the names of R4 or R5.
func (t *translationReader) takeDependency(in *parameters.Input) error {
	var d terminology.Dependency
	for i := range in.Parts {
		part := &in.Parts[i]
		switch part.Name {
		case "element", "attribute":
			d.Element = part.Value
		case "concept", "value":
			list, err := dependencyValues(part)
			if err != nil {
				return err
			}
			d.Values = append(d.Values, list...)
		}
	}
	if d.Element == "" {
		return outcome.BadRequest("required", "each parameter dependency needs the part element")
	}
	t.translation.Dependencies = append(t.translation.Dependencies, d)
	return nil
}

// dependencyValues reads the value of a dependency: a CodeableConcept with its text, a Coding, or a primitive.
func dependencyValues(in *parameters.Input) ([]parameters.Coding, error) {
	if in.Complex == nil {
		return []parameters.Coding{{Code: in.Value}}, nil
	}
	codings, err := parameters.ParseConcept(in.Complex)
	if err != nil {
		return nil, err
	}
	single, err := parameters.ParseCoding(in.Complex, "dependency")
	if err != nil {
		return nil, err
	}
	var text string
	if err := fhirjson.ReaderOf(in.Complex).Strings(fhirjson.String{Name: "text", Into: &text}); err != nil {
		return nil, outcome.BadRequest("structure", "CodeableConcept cannot be read: %v", err)
	}
	return slices.DeleteFunc(append(codings, single, parameters.Coding{Code: text}), func(c parameters.Coding) bool { return c.Code == "" }), nil
}

// translationReader reads the parameters of $translate, by their names in R4 and R5.
type translationReader struct {
	common       common
	translation  terminology.Translation
	sourceSystem string
	version      string // of a code
}

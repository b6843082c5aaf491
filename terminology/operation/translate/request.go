package translate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// request is a request for $translate, by the names of R4 and R5.
type request struct {
	shared       *api.Parameters
	query        Query
	sourceSystem string
	version      string // of a code
}

func readRequest(c *api.Call, inputs []parameters.Input) (*request, error) {
	shared, err := c.Parameters(inputs)
	if err != nil {
		return nil, err
	}
	r := &request{shared: shared}
	given := 0
	for i := range inputs {
		isConcept, err := r.take(&inputs[i])
		if err != nil {
			return nil, err
		}
		if isConcept {
			given++
		}
	}
	if given != 1 {
		return nil, outcome.BadRequest("required", "there must be exactly one of the parameters code, coding and codeableConcept, or of those of R5: "+
			"sourceCode, sourceCoding, sourceCodeableConcept, targetCode, targetCoding and targetCodeableConcept")
	}
	r.orient()
	r.query.ID, r.query.URL, r.query.Limits = shared.ID, shared.URL, shared.Limits
	return r, nil
}

// take reads one parameter and reports whether it is a concept to translate.
func (r *request) take(in *parameters.Input) (isConcept bool, err error) {
	switch in.Name {
	case "code", "sourceCode", "targetCode":
		r.query.Codings = []parameters.Coding{{Code: in.Value}}
	case "coding", "sourceCoding", "targetCoding":
		var c parameters.Coding
		c, err = parameters.ParseCoding(in.Complex, in.Name)
		r.query.Codings = []parameters.Coding{c}
	case "codeableConcept", "sourceCodeableConcept", "targetCodeableConcept":
		r.query.Codings, err = parameters.ParseConcept(in.Complex)
	case "conceptMap":
		return false, r.takeMap(in)
	case "dependency":
		return false, r.takeDependency(in)
	default:
		r.takeOther(in)
		return false, nil
	}
	r.query.Reverse = r.query.Reverse || strings.HasPrefix(in.Name, "target")
	return true, err
}

// takeOther reads one parameter that selects concept maps.
func (r *request) takeOther(in *parameters.Input) {
	switch in.Name {
	case "system", "sourceSystem":
		r.sourceSystem = in.Value
	case "targetsystem", "targetSystem":
		r.query.TargetSystem = in.Value
	case "version":
		r.version = in.Value
	case "conceptMapVersion":
		r.query.Version = in.Value
	case "source", "sourceScope":
		r.query.SourceScope = in.Value
	case "target", "targetScope":
		r.query.TargetScope = in.Value
	case "reverse":
		r.query.Reverse = r.query.Reverse || in.Value == "true"
	}
}

func (r *request) takeMap(in *parameters.Input) error {
	switch {
	case in.Resource == nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap must be a resource, which only a POST can give")
	case r.query.ConceptMap != nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap may be given only once")
	}
	r.query.ConceptMap = in.Resource
	return nil
}

// orient decides which system is the code's and which is on the other side. With R5's names, a reverse translation
// starts from the target's. R4's parameter reverse leaves open whether system remains the code's or is reversed too, so
// both are tried.
func (r *request) orient() {
	own, other := r.sourceSystem, r.query.TargetSystem
	switch {
	case !r.query.Reverse:
	case r.shared.Sent("reverse"):
		r.query.EitherWay = own != "" && other != ""
		if r.query.SourceScope != "" || r.query.TargetScope != "" {
			r.query.SourceScope, r.query.TargetScope = r.query.TargetScope, r.query.SourceScope
		}
	case own != "" && other != "":
		own, other = other, own
	case own == "":
		own, other = other, ""
	}
	for i := range r.query.Codings {
		if c := &r.query.Codings[i]; c.System == "" {
			c.System, c.Version = own, cmp.Or(c.Version, r.version)
		}
	}
	r.query.TargetSystem = other
	r.query.InTermsOfR5 = !r.shared.Sent("reverse")
}

// takeDependency reads one parameter dependency, with the names of R4 or R5.
func (r *request) takeDependency(in *parameters.Input) error {
	var d Dependency
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
	r.query.Dependencies = append(r.query.Dependencies, d)
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

package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// Translate answers [base]/ConceptMap/$translate and [base]/ConceptMap/{id}/$translate. See [Handler.Expand] for what
// is written and returned.
func (h *Handler) Translate(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
		p, err := o.readTranslation(inputs)
		if err != nil {
			return nil, err
		}
		if l, err = o.libraryWith(l, &p.common); err != nil {
			return nil, err
		}
		result, err := l.Translate(&o.budget, p.translation)
		if err != nil {
			return nil, err
		}
		return o.orProvisional(result.AppendJSON(nil), result.Missing)
	})
}

func (o *operation) readTranslation(inputs []parameters.Input) (*translationReader, error) {
	t := new(translationReader)
	if err := t.common.read(inputs); err != nil {
		return nil, err
	}
	given := 0
	for i := range inputs {
		isConcept, err := t.take(&inputs[i])
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
	t.orient()
	o.fill(&t.common)
	t.translation.ID, t.translation.URL, t.translation.Limits = t.common.ID, t.common.URL, t.common.Limits
	return t, nil
}

// take reads one parameter and reports whether it is what to translate.
func (t *translationReader) take(in *parameters.Input) (isConcept bool, err error) {
	switch in.Name {
	case "code", "sourceCode", "targetCode":
		t.translation.Codings = []parameters.Coding{{Code: in.Value}}
	case "coding", "sourceCoding", "targetCoding":
		var c parameters.Coding
		c, err = parameters.ParseCoding(in.Complex, in.Name)
		t.translation.Codings = []parameters.Coding{c}
	case "codeableConcept", "sourceCodeableConcept", "targetCodeableConcept":
		t.translation.Codings, err = parameters.ParseConcept(in.Complex)
	case "conceptMap":
		return false, t.takeMap(in)
	case "dependency":
		return false, t.takeDependency(in)
	default:
		t.takeOther(in)
		return false, nil
	}
	t.translation.Reverse = t.translation.Reverse || strings.HasPrefix(in.Name, "target")
	return true, err
}

// takeOther reads one parameter that says where to look for a translation.
func (t *translationReader) takeOther(in *parameters.Input) {
	switch in.Name {
	case "system", "sourceSystem":
		t.sourceSystem = in.Value
	case "targetsystem", "targetSystem":
		t.translation.TargetSystem = in.Value
	case "version":
		t.version = in.Value
	case "conceptMapVersion":
		t.translation.Version = in.Value
	case "source", "sourceScope":
		t.translation.SourceScope = in.Value
	case "target", "targetScope":
		t.translation.TargetScope = in.Value
	case "reverse":
		t.translation.Reverse = t.translation.Reverse || in.Value == "true"
	}
}

func (t *translationReader) takeMap(in *parameters.Input) error {
	switch {
	case in.Resource == nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap must be a resource, which only a POST can give")
	case t.translation.ConceptMap != nil:
		return outcome.BadRequest("invalid", "the parameter conceptMap may be given only once")
	}
	t.translation.ConceptMap = in.Resource
	return nil
}

// orient decides which system is the code's and which is on the other side. With R5's names, a reverse translation
// starts from the target's. R4's parameter reverse leaves open whether system remains the code's or is reversed too, so
// both are tried.
func (t *translationReader) orient() {
	own, other := t.sourceSystem, t.translation.TargetSystem
	switch {
	case !t.translation.Reverse:
	case t.common.Sent("reverse"):
		t.translation.EitherWay = own != "" && other != ""
		if t.translation.SourceScope != "" || t.translation.TargetScope != "" {
			t.translation.SourceScope, t.translation.TargetScope = t.translation.TargetScope, t.translation.SourceScope
		}
	case own != "" && other != "":
		own, other = other, own
	case own == "":
		own, other = other, ""
	}
	for i := range t.translation.Codings {
		if c := &t.translation.Codings[i]; c.System == "" {
			c.System, c.Version = own, cmp.Or(c.Version, t.version)
		}
	}
	t.translation.TargetSystem = other
	t.translation.InTermsOfR5 = !t.common.Sent("reverse")
}

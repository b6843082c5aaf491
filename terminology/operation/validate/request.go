package validate

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// request is a request for $validate-code, of value sets and code systems.
type request struct {
	shared      *api.Parameters
	query       Query
	code        *parameters.Coding // the parameters code, system and display
	infer       bool               // inferSystem
	codeSystem  jsontext.Value
	codeVersion string // version
}

func readRequest(c *api.Call, inputs []parameters.Input, inValueSet bool) (*request, error) {
	shared, err := c.Parameters(inputs)
	if err != nil {
		return nil, err
	}
	r := &request{shared: shared}
	for i := range inputs {
		if err := r.take(&inputs[i]); err != nil {
			return nil, err
		}
	}
	if err := r.choose(inValueSet); err != nil {
		return nil, err
	}
	r.query.ValueSetRef, r.query.Rules, r.query.Language = shared.ValueSetRef, shared.Rules, shared.Language
	if r.codeSystem != nil {
		shared.Resources = append(shared.Resources, r.codeSystem)
	}
	return r, nil
}

// choose takes what to validate: exactly one of code, coding and codeableConcept (R4 ValueSet/$validate-code).
func (r *request) choose(inValueSet bool) error {
	given := 0
	for _, name := range []string{"code", "coding", "codeableConcept"} {
		if r.shared.Sent(name) {
			given++
		}
	}
	switch {
	case given == 0: // in the words of the other servers
		return outcome.BadRequest("invalid", "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)")
	case given > 1:
		return outcome.BadRequest("invalid", "there must be exactly one of the parameters code, coding and codeableConcept")
	}
	if !r.shared.Sent("code") {
		r.code = nil // system, display and the like belong to the parameter code
	} else if r.code.Code == "" {
		return outcome.BadRequest("required", "the parameter code is empty")
	}
	if !inValueSet {
		return r.chooseInSystem()
	}
	if r.code == nil {
		return nil
	}
	r.query.InferSystem = r.infer || r.shared.Context != ""
	if r.code.System == "" && !r.query.InferSystem {
		return outcome.BadRequest("invalid", "the parameter code needs the parameter system beside it, or inferSystem, or context")
	}
	r.query.Codings = []parameters.Coding{*r.code}
	return nil
}

// chooseInSystem is choose for a code system: that of url, codeSystem, the instance, or else system. A coding must be
// of it; codings of a CodeableConcept that are not are left out (R4 CodeSystem/$validate-code).
func (r *request) chooseInSystem() error {
	system, version := outcome.Split(r.shared.URL)
	r.codeVersion = cmp.Or(r.codeVersion, version)
	if system == "" && r.codeSystem != nil {
		d, err := definitions.DefinitionOf(r.codeSystem)
		if err != nil {
			return outcome.BadRequest("structure", "the parameter codeSystem cannot be read: %v", err)
		}
		system, r.codeVersion = d.URL, cmp.Or(r.codeVersion, d.Version)
	}
	if r.code != nil {
		r.code.System, r.code.Version = cmp.Or(system, r.code.System), cmp.Or(r.codeVersion, r.code.Version)
		if r.code.System == "" && r.shared.ID == "" {
			return outcome.BadRequest("required", "the parameter code needs the parameter url beside it, which names the code system")
		}
		r.query.Codings = []parameters.Coding{*r.code}
		return nil
	}
	other := func(c parameters.Coding) bool { return system != "" && c.System != "" && c.System != system }
	if r.query.CodeableConcept == nil && other(r.query.Codings[0]) {
		return outcome.BadRequest("invalid", "the coding is of %s, not of the code system %s", r.query.Codings[0].System, system)
	}
	r.query.Codings = slices.DeleteFunc(r.query.Codings, other)
	return nil
}

// take reads one parameter.
func (r *request) take(in *parameters.Input) error {
	switch in.Name {
	case "version":
		r.codeVersion = in.Value
	case "codeSystem":
		r.codeSystem = in.Resource
	case "inferSystem", "implySystem":
		r.infer = in.Value == "true"
	case "lenient-display-validation":
		r.query.LenientDisplay = in.Value == "true"
	case "valueset-membership-only":
		r.query.MembershipOnly = in.Value == "true"
	case "abstract":
		r.query.NotAbstract = in.Value == "false"
	default:
		return r.takeCode(in)
	}
	return nil
}

// takeCode reads a parameter that is what to validate, or part of it.
func (r *request) takeCode(in *parameters.Input) (err error) {
	alone := func() *parameters.Coding {
		if r.code == nil {
			r.code = &parameters.Coding{}
		}
		return r.code
	}
	switch in.Name {
	case "code":
		alone().Code = in.Value
	case "system":
		alone().System = in.Value
	case "systemVersion":
		alone().Version = in.Value
	case "display":
		alone().Display = in.Value
	case "coding":
		var c parameters.Coding
		c, err = parameters.ParseCoding(in.Complex, "Coding")
		r.query.Codings = []parameters.Coding{c}
	case "codeableConcept":
		r.query.CodeableConcept = in.Complex
		r.query.Codings, err = parameters.ParseConcept(in.Complex)
	}
	return err
}

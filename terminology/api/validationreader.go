package api

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/validate"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// validationReader reads the parameters of $validate-code, of value sets and code systems.
type validationReader struct {
	common      common
	validation  validate.Validation
	code        *parameters.Coding // the parameters code, system and display
	infer       bool               // inferSystem
	codeSystem  jsontext.Value
	codeVersion string // version
}

func (o *operation) readValidation(inputs []parameters.Input, inValueSet bool) (*validationReader, error) {
	v := new(validationReader)
	if err := v.common.read(inputs); err != nil {
		return nil, err
	}
	for i := range inputs {
		if err := v.take(&inputs[i]); err != nil {
			return nil, err
		}
	}
	o.fill(&v.common)
	if err := v.choose(inValueSet); err != nil {
		return nil, err
	}
	v.validation.ValueSetRef, v.validation.Rules, v.validation.Language = v.common.ValueSetRef, v.common.Rules, v.common.Language
	if v.codeSystem != nil {
		v.common.resources = append(v.common.resources, v.codeSystem)
	}
	return v, nil
}

// choose takes what to validate: exactly one of code, coding and codeableConcept (R4 ValueSet/$validate-code).
func (v *validationReader) choose(inValueSet bool) error {
	given := 0
	for _, name := range []string{"code", "coding", "codeableConcept"} {
		if v.common.Sent(name) {
			given++
		}
	}
	switch {
	case given == 0: // in the words of the other servers
		return outcome.BadRequest("invalid", "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)")
	case given > 1:
		return outcome.BadRequest("invalid", "there must be exactly one of the parameters code, coding and codeableConcept")
	}
	if !v.common.Sent("code") {
		v.code = nil // system, display and the like belong to the parameter code
	} else if v.code.Code == "" {
		return outcome.BadRequest("required", "the parameter code is empty")
	}
	if !inValueSet {
		return v.chooseInSystem()
	}
	if v.code == nil {
		return nil
	}
	v.validation.InferSystem = v.infer || v.common.Context != ""
	if v.code.System == "" && !v.validation.InferSystem {
		return outcome.BadRequest("invalid", "the parameter code needs the parameter system beside it, or inferSystem, or context")
	}
	v.validation.Codings = []parameters.Coding{*v.code}
	return nil
}

// chooseInSystem is choose for a code system: that of url, codeSystem, the instance, or else system. A coding must be
// of it; codings of a CodeableConcept that are not are left out (R4 CodeSystem/$validate-code).
func (v *validationReader) chooseInSystem() error {
	system, version := outcome.Split(v.common.URL)
	v.codeVersion = cmp.Or(v.codeVersion, version)
	if system == "" && v.codeSystem != nil {
		d, err := definitions.DefinitionOf(v.codeSystem)
		if err != nil {
			return outcome.BadRequest("structure", "the parameter codeSystem cannot be read: %v", err)
		}
		system, v.codeVersion = d.URL, cmp.Or(v.codeVersion, d.Version)
	}
	if v.code != nil {
		v.code.System, v.code.Version = cmp.Or(system, v.code.System), cmp.Or(v.codeVersion, v.code.Version)
		if v.code.System == "" && v.common.ID == "" {
			return outcome.BadRequest("required", "the parameter code needs the parameter url beside it, which names the code system")
		}
		v.validation.Codings = []parameters.Coding{*v.code}
		return nil
	}
	other := func(c parameters.Coding) bool { return system != "" && c.System != "" && c.System != system }
	if v.validation.CodeableConcept == nil && other(v.validation.Codings[0]) {
		return outcome.BadRequest("invalid", "the coding is of %s, not of the code system %s", v.validation.Codings[0].System, system)
	}
	v.validation.Codings = slices.DeleteFunc(v.validation.Codings, other)
	return nil
}

// take reads one parameter.
func (v *validationReader) take(in *parameters.Input) error {
	switch in.Name {
	case "version":
		v.codeVersion = in.Value
	case "codeSystem":
		v.codeSystem = in.Resource
	case "inferSystem", "implySystem":
		v.infer = in.Value == "true"
	case "lenient-display-validation":
		v.validation.LenientDisplay = in.Value == "true"
	case "valueset-membership-only":
		v.validation.MembershipOnly = in.Value == "true"
	case "abstract":
		v.validation.NotAbstract = in.Value == "false"
	default:
		return v.takeCode(in)
	}
	return nil
}

// takeCode reads a parameter that is what to validate, or part of it.
func (v *validationReader) takeCode(in *parameters.Input) (err error) {
	alone := func() *parameters.Coding {
		if v.code == nil {
			v.code = &parameters.Coding{}
		}
		return v.code
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
		v.validation.Codings = []parameters.Coding{c}
	case "codeableConcept":
		v.validation.CodeableConcept = in.Complex
		v.validation.Codings, err = parameters.ParseConcept(in.Complex)
	}
	return err
}

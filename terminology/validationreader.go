package terminology

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// validationReader reads the parameters of $validate-code, of value sets and code systems.
type validationReader struct {
	parameters
	validation  Validation
	code        *Coding // the parameters code, system and display
	infer       bool    // inferSystem
	codeSystem  jsontext.Value
	codeVersion string // version
}

func (o *operation) readValidation(inputs []input, inValueSet bool) (*validationReader, error) {
	v := new(validationReader)
	if err := v.read(inputs); err != nil {
		return nil, err
	}
	for i := range inputs {
		if err := v.take(&inputs[i]); err != nil {
			return nil, err
		}
	}
	o.fill(&v.parameters)
	if err := v.choose(inValueSet); err != nil {
		return nil, err
	}
	v.validation.ValueSetRef, v.validation.Rules, v.validation.Language = v.ValueSetRef, v.Rules, v.Language
	if v.codeSystem != nil {
		v.resources = append(v.resources, v.codeSystem)
	}
	return v, nil
}

// choose takes what to validate: exactly one of code, coding and codeableConcept (R4 ValueSet/$validate-code).
func (v *validationReader) choose(inValueSet bool) error {
	given := 0
	for _, name := range []string{"code", "coding", "codeableConcept"} {
		if v.sent(name) {
			given++
		}
	}
	switch {
	case given == 0: // in the words of the other servers
		return badRequest("invalid", "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)")
	case given > 1:
		return badRequest("invalid", "there must be exactly one of the parameters code, coding and codeableConcept")
	}
	if !v.sent("code") {
		v.code = nil // system, display and the like belong to the parameter code
	} else if v.code.Code == "" {
		return badRequest("required", "the parameter code is empty")
	}
	if !inValueSet {
		return v.chooseInSystem()
	}
	if v.code == nil {
		return nil
	}
	v.validation.InferSystem = v.infer || v.Context != ""
	if v.code.System == "" && !v.validation.InferSystem {
		return badRequest("invalid", "the parameter code needs the parameter system beside it, or inferSystem, or context")
	}
	v.validation.Codings = []Coding{*v.code}
	return nil
}

// chooseInSystem is choose for a code system: that of url, codeSystem, the instance, or else system. A coding must be
// of it; codings of a CodeableConcept that are not are left out (R4 CodeSystem/$validate-code).
func (v *validationReader) chooseInSystem() error {
	system, version := splitCanonical(v.URL)
	v.codeVersion = cmp.Or(v.codeVersion, version)
	if system == "" && v.codeSystem != nil {
		d, err := definitionOf(v.codeSystem)
		if err != nil {
			return badRequest("structure", "the parameter codeSystem cannot be read: %v", err)
		}
		system, v.codeVersion = d.url, cmp.Or(v.codeVersion, d.version)
	}
	if v.code != nil {
		v.code.System, v.code.Version = cmp.Or(system, v.code.System), cmp.Or(v.codeVersion, v.code.Version)
		if v.code.System == "" && v.ID == "" {
			return badRequest("required", "the parameter code needs the parameter url beside it, which names the code system")
		}
		v.validation.Codings = []Coding{*v.code}
		return nil
	}
	other := func(c Coding) bool { return system != "" && c.System != "" && c.System != system }
	if v.validation.CodeableConcept == nil && other(v.validation.Codings[0]) {
		return badRequest("invalid", "the coding is of %s, not of the code system %s", v.validation.Codings[0].System, system)
	}
	v.validation.Codings = slices.DeleteFunc(v.validation.Codings, other)
	return nil
}

// take reads one parameter.
func (v *validationReader) take(in *input) error {
	switch in.name {
	case "version":
		v.codeVersion = in.value
	case "codeSystem":
		v.codeSystem = in.resource
	case "inferSystem", "implySystem":
		v.infer = in.value == "true"
	case "lenient-display-validation":
		v.validation.LenientDisplay = in.value == "true"
	case "valueset-membership-only":
		v.validation.MembershipOnly = in.value == "true"
	case "abstract":
		v.validation.NotAbstract = in.value == "false"
	default:
		return v.takeCode(in)
	}
	return nil
}

// takeCode reads a parameter that is what to validate, or part of it.
func (v *validationReader) takeCode(in *input) (err error) {
	alone := func() *Coding {
		if v.code == nil {
			v.code = &Coding{}
		}
		return v.code
	}
	switch in.name {
	case "code":
		alone().Code = in.value
	case "system":
		alone().System = in.value
	case "systemVersion":
		alone().Version = in.value
	case "display":
		alone().Display = in.value
	case "coding":
		var c Coding
		c, err = parseCoding(in.complex, "Coding")
		v.validation.Codings = []Coding{c}
	case "codeableConcept":
		v.validation.CodeableConcept = in.complex
		v.validation.Codings, err = parseConcept(in.complex)
	}
	return err
}

package terminology

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// validation are the parameters of $validate-code, for value sets and for code systems.
type validation struct {
	parameters
	codings     []coding
	concept     jsontext.Value // the CodeableConcept, if that is what is validated
	code        *coding        // code, system and display as parameters of their own
	infer       bool           // the system is to be found by the value set
	lenient     bool
	memberOnly  bool
	concrete    bool // abstract codes are not allowed
	codeSystem  jsontext.Value
	codeVersion string
}

// ValidateCode answers [base]/ValueSet/$validate-code and [base]/ValueSet/{id}/$validate-code. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) ValidateCode(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(q *asking, l *Library, inputs []input) ([]byte, error) { return h.validate(l, q, inputs, true) })
}

// ValidateCodeInSystem answers [base]/CodeSystem/$validate-code and [base]/CodeSystem/{id}/$validate-code. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) ValidateCodeInSystem(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(q *asking, l *Library, inputs []input) ([]byte, error) { return h.validate(l, q, inputs, false) })
}

// validate validates, and returns the Parameters of the answer, unless others may have a better one.
func (h *Handler) validate(l *Library, q *asking, inputs []input, inValueSet bool) ([]byte, error) {
	answer, missed, err := h.validation(l, q, inputs, inValueSet)
	if err != nil {
		return nil, err
	}
	return h.unlessOthers(answer, missed)
}

// validation validates, and returns the Parameters of the answer, and what it missed. That is fetched, if it can be:
// the answer without it would be a poor one.
func (h *Handler) validation(l *Library, q *asking, inputs []input, inValueSet bool) ([]byte, []Missing, error) {
	answer, missed, err := h.validateIn(l, q, inputs, inValueSet)
	for round := 0; h.Fetched != nil && len(missed) > 0 && round < maxFetches; round++ {
		more, failure := q.complete(h.Fetched, l, missed)
		if failure != nil {
			return nil, nil, failure
		}
		if more == l {
			break
		}
		l = more
		answer, missed, err = h.validateIn(l, q, inputs, inValueSet)
		runtime.KeepAlive(l)
	}
	return answer, missed, err
}

// validateIn validates in a library, and says what it missed there for a better answer.
func (h *Handler) validateIn(l *Library, q *asking, inputs []input, inValueSet bool) ([]byte, []Missing, error) {
	p, err := parseValidation(inputs)
	if err != nil {
		return nil, nil, err
	}
	h.complete(&p.parameters, q)
	if err := p.choose(inValueSet); err != nil {
		return nil, nil, err
	}
	v, err := h.validator(l, p, inValueSet)
	if err != nil {
		return nil, missingIn(err), err
	}
	answer, err := v.answer(p)
	if v.valid && len(v.unchecked) == 0 {
		return answer, nil, err
	}
	return answer, append(missingIn(err), v.lacking(p.codings)...), err
}

// lacking returns the definitions for lack of which codings were not found.
func (v *validator) lacking(codings []coding) []Missing {
	list := append(v.missed, v.library.missingSystems(codings)...)
	for _, reference := range slices.Concat(v.unknown, v.unchecked) {
		if m := (Missing{Kind: "CodeSystem", Canonical: reference}); !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

// parseValidation reads the parameters of $validate-code.
func parseValidation(inputs []input) (*validation, error) {
	v := new(validation)
	if err := v.read(inputs); err != nil {
		return nil, err
	}
	for i := range inputs {
		if err := v.take(&inputs[i]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// choose takes what is to be validated: one, and only one, of the parameters code, coding and codeableConcept
// (R4 ValueSet/$validate-code).
func (v *validation) choose(inValueSet bool) error {
	given := 0
	for _, name := range []string{"code", "coding", "codeableConcept"} {
		if v.has(name) {
			given++
		}
	}
	switch {
	case given == 0: // in the words of the other servers
		return badRequest("invalid", "Unable to find code to validate (looked for coding | codeableConcept | code+system | code+inferSystem in parameters)")
	case given > 1:
		return badRequest("invalid", "there must be exactly one of the parameters code, coding and codeableConcept")
	}
	if !v.has("code") {
		v.code = nil // system, display and the like say something of a code alone
	} else if v.code.code == "" {
		return badRequest("required", "the parameter code is empty")
	}
	if !inValueSet {
		return v.chooseInSystem()
	}
	if v.code == nil {
		return nil
	}
	v.infer = v.infer || v.Context != ""
	if v.code.system == "" && !v.infer {
		return badRequest("invalid", "the parameter code needs the parameter system beside it, or inferSystem, or context")
	}
	v.codings = []coding{*v.code}
	return nil
}

// chooseInSystem is choose where the code system is the one that url names, or codeSystem is, or the instance, or
// else what system says. Codings must be of it; of a CodeableConcept, those that are not do not count (R4
// CodeSystem/$validate-code).
func (v *validation) chooseInSystem() error {
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
		v.code.system, v.code.version = cmp.Or(system, v.code.system), cmp.Or(v.codeVersion, v.code.version)
		if v.code.system == "" && v.ID == "" {
			return badRequest("required", "the parameter code needs the parameter url beside it, which names the code system")
		}
		v.codings = []coding{*v.code}
		return nil
	}
	other := func(c coding) bool { return system != "" && c.system != "" && c.system != system }
	if v.concept == nil && other(v.codings[0]) {
		return badRequest("invalid", "the coding is of %s, not of the code system %s", v.codings[0].system, system)
	}
	v.codings = slices.DeleteFunc(v.codings, other)
	return nil
}

// take takes over one parameter.
func (v *validation) take(in *input) error {
	switch in.name {
	case "version":
		v.codeVersion = in.value
	case "codeSystem":
		v.codeSystem = in.resource
	case "inferSystem", "implySystem":
		v.infer = in.value == "true"
	case "lenient-display-validation":
		v.lenient = in.value == "true"
	case "valueset-membership-only":
		v.memberOnly = in.value == "true"
	case "abstract":
		v.concrete = in.value == "false"
	default:
		return v.takeCode(in)
	}
	return nil
}

// takeCode takes over one parameter that is, or is a part of, what is validated.
func (v *validation) takeCode(in *input) (err error) {
	alone := func() *coding {
		if v.code == nil {
			v.code = &coding{}
		}
		return v.code
	}
	switch in.name {
	case "code":
		alone().code = in.value
	case "system":
		alone().system = in.value
	case "systemVersion":
		alone().version = in.value
	case "display":
		alone().display = in.value
	case "coding":
		var c coding
		c, err = parseCoding(in.complex, "Coding")
		v.codings = []coding{c}
	case "codeableConcept":
		v.concept = in.complex
		v.codings, err = parseConcept(in.complex)
	}
	return err
}

// validator prepares what validates.
func (h *Handler) validator(l *Library, p *validation, inValueSet bool) (*validator, error) {
	if p.codeSystem != nil {
		p.resources = append(p.resources, p.codeSystem)
	}
	v := &validator{lenient: p.lenient, memberOnly: p.memberOnly, concrete: p.concrete, concept: p.concept != nil, named: p.Supplements}
	l, err := h.with(l, &p.parameters, p.budget)
	if err != nil {
		return nil, err
	}
	if inValueSet {
		l, vs, err := l.subject(&p.ValueSetRef, &p.Rules, p.budget)
		if err != nil {
			return nil, err
		}
		if err := p.adopt(vs.defaults); err != nil {
			return nil, err
		}
		v.library, v.valueSet = l, vs
		v.language = p.Language.of(vs)
		v.named = slices.Concat(v.named, vs.supplements)
	} else {
		if err := checkDate(p.Date); err != nil {
			return nil, err
		}
		if p.ID != "" {
			for i := range p.codings {
				if err := l.instance(p.ID, &p.codings[i]); err != nil {
					return nil, err
				}
			}
		}
		v.library, v.language = l, p.Language.of(&valueSet{})
	}
	v.rules, v.budget = p.Rules, p.budget
	if v.language != "" {
		v.languages = parseLanguages(v.language)
	}
	return v, v.checkSupplements(p.codings)
}

// checkSupplements checks that the supplements which are named are here.
func (v *validator) checkSupplements(codings []coding) error {
	var missing []string
	for _, reference := range v.named {
		url, version := splitCanonical(reference)
		if index := v.library.codeSystem(url, version); index == none || v.library.codeSystems[index].content != contentSupplement {
			missing = append(missing, reference)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return missingSupplements(missing)
}

// checkLanguage checks the parameter displayLanguage.
func checkLanguage(list string) error {
	for item := range strings.SplitSeq(list, ",") {
		tag, _, _ := strings.Cut(item, ";")
		tag = strings.TrimSpace(tag)
		letters := strings.IndexFunc(tag, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' || r == '*' })
		if tag != "" && letters != 0 {
			return issue(http.StatusBadRequest, "processing", "invalid-display", "INVALID_DISPLAY_NAME", fmt.Sprintf("Invalid displayLanguage: '%s'", list))
		}
	}
	return nil
}

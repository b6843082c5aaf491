package terminology

import "net/http"

// ValidateCode answers [base]/ValueSet/$validate-code and [base]/ValueSet/{id}/$validate-code. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) ValidateCode(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *Library, inputs []input) ([]byte, error) { return o.validate(l, inputs, true) })
}

// ValidateCodeInSystem answers [base]/CodeSystem/$validate-code and [base]/CodeSystem/{id}/$validate-code. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) ValidateCodeInSystem(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *Library, inputs []input) ([]byte, error) { return o.validate(l, inputs, false) })
}

// validate validates, and returns the Parameters of the answer, unless others may have a better one.
func (o *operation) validate(l *Library, inputs []input, inValueSet bool) ([]byte, error) {
	result, err := o.validation(l, inputs, inValueSet)
	if err != nil {
		return nil, err
	}
	return o.orProvisional(result.AppendJSON(nil), result.Missing)
}

// validation validates. What is missing for that is fetched, if it can be: the answer without it would be a poor one.
func (o *operation) validation(l *Library, inputs []input, inValueSet bool) (*ValidationResult, error) {
	p, err := o.readValidation(inputs, inValueSet)
	if err != nil {
		return nil, err
	}
	result, missed, err := o.validateIn(l, p, inValueSet)
	for round := 0; o.handler.Fetched != nil && len(missed) > 0 && round < maxFetches; round++ {
		more, failure := o.fetch(o.handler.Fetched, missed)
		if failure != nil {
			return nil, failure
		}
		if more == l {
			break
		}
		l = more
		result, missed, err = o.validateIn(l, p, inValueSet)
	}
	return result, err
}

// validateIn validates in a library, and says what it missed there for a better answer.
func (o *operation) validateIn(l *Library, p *validationReader, inValueSet bool) (result *ValidationResult, missed []Missing, err error) {
	if l, err = o.libraryWith(l, &p.parameters); err != nil {
		return nil, missingIn(err), err
	}
	if inValueSet {
		result, err = l.ValidateCode(&o.budget, p.validation)
	} else {
		result, err = l.ValidateCodeInSystem(&o.budget, p.validation)
	}
	if err != nil {
		return nil, missingIn(err), err
	}
	return result, result.Missing, nil
}

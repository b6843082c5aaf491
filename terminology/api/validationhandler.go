package api

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/validate"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// ValidateCode answers [base]/ValueSet/$validate-code and [base]/ValueSet/{id}/$validate-code. See [Handler.Expand] for
// what is written and returned.
func (h *Handler) ValidateCode(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
		return o.validate(l, inputs, true)
	})
}

// ValidateCodeInSystem answers [base]/CodeSystem/$validate-code and [base]/CodeSystem/{id}/$validate-code. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) ValidateCodeInSystem(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
		return o.validate(l, inputs, false)
	})
}

func (o *operation) validate(l *terminology.Library, inputs []parameters.Input, inValueSet bool) ([]byte, error) {
	result, err := o.validation(l, inputs, inValueSet)
	if err != nil {
		return nil, err
	}
	return o.orProvisional(result.AppendJSON(nil), result.Missing)
}

// validation validates. It fetches what is missing for a better result.
func (o *operation) validation(l *terminology.Library, inputs []parameters.Input, inValueSet bool) (*validate.ValidationResult, error) {
	p, err := o.readValidation(inputs, inValueSet)
	if err != nil {
		return nil, err
	}
	return fetching(o, l, func(l *terminology.Library) (*validate.ValidationResult, []outcome.Missing, error) {
		l, err := o.libraryWith(l, &p.common)
		if err != nil {
			return nil, missingIn(err), err
		}
		validate := l.ValidateCodeInSystem
		if inValueSet {
			validate = l.ValidateCode
		}
		result, err := validate(&o.budget, p.validation)
		if err != nil {
			return nil, missingIn(err), err
		}
		return result, result.Missing, nil
	})
}

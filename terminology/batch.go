package terminology

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// maxValidations bounds how many codings one request may have validated.
const maxValidations = 1000

// maxReread bounds what is read of the resources that a request brings along for all of its validations, in
// bytes: each of these reads them anew.
const maxReread = 256 << 20

// validationSteps is what one validation takes beside its parameters: an answer is made, with its issues.
const validationSteps = 100

// BatchValidateCode answers [base]/ValueSet/$batch-validate-code: each parameter validation is the
// Parameters of one $validate-code, and the other parameters are common to all. What fails is answered by an
// OperationOutcome in its place. See [Handler.Expand] for what is written and returned.
func (h *Handler) BatchValidateCode(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(o *operation, l *Library, inputs []input) ([]byte, error) { return o.validations(l, inputs) })
}

func (o *operation) validations(l *Library, inputs []input) ([]byte, error) {
	var common, single []input
	size, again := 0, 0 // of the resources for all; of their other parameters, in steps
	for _, in := range inputs {
		if in.name == "validation" {
			single = append(single, in)
		} else {
			common = append(common, in)
			size += len(in.resource)
			again += 4 + (len(in.name)+len(in.value)+len(in.complex))/readBytes
		}
	}
	if len(single) == 0 || len(single) > maxValidations {
		return nil, badRequest("invalid", "there must be from 1 to %d parameters validation", maxValidations)
	}
	if size > maxReread/len(single) {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf(
			"the resources for all validations are too large for so many (%s in all); send fewer at once", fhirjson.SizeText(int64(size*len(single))))}
	}
	out := newParametersWriter(nil)
	for _, in := range single {
		if err := o.budget.spend(validationSteps + again); err != nil {
			return nil, err
		}
		result, err := o.validateOne(l, common, &in)
		if err != nil {
			return nil, err
		}
		out.raw("validation", "resource", result)
		if len(out.dst) > maxWritten {
			return nil, tooLong()
		}
	}
	return out.end(), nil
}

// validateOne answers one validation.
func (o *operation) validateOne(l *Library, common []input, in *input) ([]byte, error) {
	var inputs []input
	err := badRequest("required", "the parameter validation must be a Parameters resource")
	if in.resource != nil {
		inputs, err = bodyInputs(nil, in.resource, "")
	}
	if err == nil {
		merged := inputs
		if err := o.budget.spend(1 + len(inputs)*len(common)/plainBytes); err != nil {
			return nil, err
		}
		for _, c := range common {
			if _, given := find(inputs, c.name); !given || c.name == "tx-resource" {
				merged = append(merged, c)
			}
		}
		_, hasValueSet := find(merged, "url")
		_, hasResource := find(merged, "valueSet")
		var result *ValidationResult
		if result, err = o.validation(l, merged, hasValueSet || hasResource); err == nil {
			return result.AppendJSON(nil), nil
		}
	}
	var failed *Error
	if errors.As(err, &failed) && !isOwn(err) {
		return failed.OperationOutcome(), nil
	}
	return nil, err
}

// find returns the first parameter with a name.
func find(inputs []input, name string) (*input, bool) {
	for i := range inputs {
		if inputs[i].name == name {
			return &inputs[i], true
		}
	}
	return nil, false
}

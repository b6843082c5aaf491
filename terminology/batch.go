package terminology

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

const (
	maxValidations  = 1000      // in one request
	maxReread       = 256 << 20 // bytes of common resources times validations, each of which reads them again
	validationSteps = 100       // the cost of one validation without its parameters
)

// BatchValidateCode answers [base]/ValueSet/$batch-validate-code: each parameter validation holds the Parameters of one
// $validate-code; the other parameters are common to all. A failure is answered by an OperationOutcome in its place. See
// [Handler.Expand] for what is written and returned.
func (h *Handler) BatchValidateCode(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, (*operation).validations)
}

func (o *operation) validations(l *Library, inputs []input) ([]byte, error) {
	var common, single []input
	size, again := 0, 0 // of the common resources, in bytes; of the other common parameters, in steps
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
			if c.name == "tx-resource" || find(inputs, c.name) == nil {
				merged = append(merged, c)
			}
		}
		var result *ValidationResult
		if result, err = o.validation(l, merged, find(merged, "url") != nil || find(merged, "valueSet") != nil); err == nil {
			return result.AppendJSON(nil), nil
		}
	}
	if failed, ok := errors.AsType[*Error](err); ok && !isOwn(err) {
		return failed.OperationOutcome(), nil
	}
	return nil, err
}

// find returns the first parameter with a name, or nil.
func find(inputs []input, name string) *input {
	for i := range inputs {
		if inputs[i].name == name {
			return &inputs[i]
		}
	}
	return nil
}

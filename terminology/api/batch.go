package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/validate"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
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

func (o *operation) validations(l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
	var common, single []parameters.Input
	size, again := 0, 0 // of the common resources, in bytes; of the other common parameters, in steps
	for _, in := range inputs {
		if in.Name == "validation" {
			single = append(single, in)
		} else {
			common = append(common, in)
			size += len(in.Resource)
			again += 4 + (len(in.Name)+len(in.Value)+len(in.Complex))/budget.ReadBytes
		}
	}
	if len(single) == 0 || len(single) > maxValidations {
		return nil, outcome.BadRequest("invalid", "there must be from 1 to %d parameters validation", maxValidations)
	}
	if size > maxReread/len(single) {
		return nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf(
			"the resources for all validations are too large for so many (%s in all); send fewer at once", fhirjson.SizeText(int64(size*len(single))))}
	}
	out := parameters.NewWriter(nil)
	for _, in := range single {
		if err := o.budget.Spend(validationSteps + again); err != nil {
			return nil, err
		}
		result, err := o.validateOne(l, common, &in)
		if err != nil {
			return nil, err
		}
		out.Raw("validation", "resource", result)
		if len(out.Dst) > outcome.MaxWritten {
			return nil, outcome.TooLong()
		}
	}
	return out.End(), nil
}

func (o *operation) validateOne(l *terminology.Library, common []parameters.Input, in *parameters.Input) ([]byte, error) {
	var inputs []parameters.Input
	err := outcome.BadRequest("required", "the parameter validation must be a Parameters resource")
	if in.Resource != nil {
		inputs, err = parameters.BodyInputs(nil, in.Resource, "")
	}
	if err == nil {
		merged := inputs
		if err := o.budget.Spend(1 + len(inputs)*len(common)/budget.PlainBytes); err != nil {
			return nil, err
		}
		for _, c := range common {
			if c.Name == "tx-resource" || parameters.Find(inputs, c.Name) == nil {
				merged = append(merged, c)
			}
		}
		var result *validate.ValidationResult
		if result, err = o.validation(l, merged, parameters.Find(merged, "url") != nil || parameters.Find(merged, "valueSet") != nil); err == nil {
			return result.AppendJSON(nil), nil
		}
	}
	if failed, ok := errors.AsType[*outcome.Error](err); ok && !budget.IsOwn(err) {
		return failed.OperationOutcome(), nil
	}
	return nil, err
}

// Package batch implements the operation ValueSet/$batch-validate-code, which performs several $validate-code operations in one
// request. It uses the registered $validate-code operations.
package batch

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

func init() {
	api.Register(api.Operation{Type: "ValueSet", Name: "batch-validate-code", IsExtension: true, Handle: handle})
}

const (
	maxValidations  = 1000      // maximum number of validations per request
	maxReparsedSize = 256 << 20 // maximum size in bytes of common resources times the number of validations, each of which parses the resources again
	validationSteps = 100       // cost of a validation in steps, without its parameters
)

// handle performs a $validate-code for each validation parameter, which contains its Parameters. The other parameters are
// common to all validations. If a validation fails, an OperationOutcome replaces its result.
func handle(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
	var common, single []parameters.Input
	size, again := 0, 0 // size: total bytes of common resources; again: budget steps per validation for the other parameters
	for _, in := range inputs {
		if in.Name == "validation" {
			single = append(single, in)
		} else {
			common = append(common, in)
			size += len(in.Resource)
			again += 4 + (len(in.Name)+len(in.Value)+len(in.Complex))/budget.ReadBytesPerStep
		}
	}
	if len(single) == 0 || len(single) > maxValidations {
		return nil, nil, outcome.BadRequest("invalid", "the request must have 1 to %d parameters named validation", maxValidations)
	}
	if size > maxReparsedSize/len(single) {
		return nil, nil, &outcome.Error{Status: http.StatusRequestEntityTooLarge, Code: "too-costly", Text: fmt.Sprintf(
			"the shared resources are too large for this number of validations (%s in total); send fewer validations at once", fhirjson.FormatSize(int64(size*len(single))))}
	}
	out := parameters.NewWriter(nil)
	for _, in := range single {
		if err := c.Budget.Charge(validationSteps + again); err != nil {
			return nil, nil, err
		}
		result, err := validateOne(c, l, common, &in)
		if err != nil {
			return nil, nil, err
		}
		out.Raw("validation", "resource", result)
		if len(out.Dst) > outcome.MaxResponseSize {
			return nil, nil, outcome.NewTooLong()
		}
	}
	return out.End(), nil, nil
}

func validateOne(c *api.Call, l *terminology.Library, common []parameters.Input, in *parameters.Input) ([]byte, error) {
	var inputs []parameters.Input
	err := outcome.BadRequest("required", "the parameter validation must be a Parameters resource")
	if in.Resource != nil {
		inputs, err = parameters.ParseBody(nil, in.Resource, "")
	}
	if err == nil {
		merged := inputs
		if err := c.Budget.Charge(1 + len(inputs)*len(common)/budget.PlainBytesPerStep); err != nil {
			return nil, err
		}
		for _, shared := range common {
			if shared.Name == "tx-resource" || parameters.Find(inputs, shared.Name) == nil {
				merged = append(merged, shared)
			}
		}
		var result []byte
		if result, err = validate(c, l, merged); err == nil {
			return result, nil
		}
	}
	if failed, ok := errors.AsType[*outcome.Error](err); ok && !budget.IsRequestSpecific(err) {
		return failed.OperationOutcome(), nil
	}
	return nil, err
}

// validate validates against a value set if the parameters refer to one, else against a code system.
func validate(c *api.Call, l *terminology.Library, inputs []parameters.Input) ([]byte, error) {
	kind := "CodeSystem"
	if parameters.Find(inputs, "url") != nil || parameters.Find(inputs, "valueSet") != nil {
		kind = "ValueSet"
	}
	o, ok := api.FindOperation(kind, "validate-code")
	if !ok {
		return nil, outcome.BadRequest("not-supported", "this server has no %s/$validate-code", kind)
	}
	result, _, err := o.Handle(c, l, inputs) // missing definitions are ignored because no other server is called
	return result, err
}

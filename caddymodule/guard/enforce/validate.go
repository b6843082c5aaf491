package enforce

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// validate answers $validate for a resource that the client could write: by create or by update, either will do. What
// is wrong with it may be that something it refers to is not there, so that is judged as of a write.
func (x *operations) validate(ctx context.Context, c call, i interaction.Interaction, op Operation) (*answer, error) {
	text, err := validated(c, i)
	if err != nil {
		return nil, err
	}
	res, err := resource.Parse(text, x.at.base)
	if err != nil || i.Type != "" && res.Type != i.Type {
		return nil, invalid(errParameters, "The body is no resource of the type in the path.")
	}
	grants := append(x.judge.Rights().For(res.Type, smart.Create), x.judge.Rights().For(res.Type, smart.Update)...)
	if len(grants) == 0 {
		return nil, x.refusedOperation(op, interaction.Interaction{Type: res.Type})
	}
	if i.ID != "" {
		if err := x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants); err != nil {
			return nil, err
		}
	}
	if err := x.writes.CheckNew(ctx, res, text, grants); err != nil {
		return nil, err
	}
	a, err := x.server.Ask(ctx, operationCall(c))
	if err != nil {
		return nil, err
	}
	return x.validation(a)
}

// validated is the resource in the body, by itself or in Parameters.
func validated(c call, i interaction.Interaction) ([]byte, error) {
	if err := checkNames("$validate", i.Parameters, []string{"mode", "profile", "_format", "_pretty"}); err != nil {
		return nil, err
	}
	var body struct {
		ResourceType string
		Parameter    []struct {
			Name     string
			Resource json.RawMessage
		}
	}
	if err := json.Unmarshal(c.body, &body); err != nil {
		return nil, invalid(errParameters, "The body is no resource.")
	}
	if body.ResourceType != "Parameters" {
		return c.body, nil
	}
	var found []byte
	for _, p := range body.Parameter {
		switch {
		case p.Name == "resource" && found == nil && p.Resource != nil:
			found = p.Resource
		case p.Name != "mode" && p.Name != "profile" || p.Resource != nil:
			return nil, forbidden(ErrOracle, "$validate takes one resource, mode and profile here.")
		}
	}
	if found == nil {
		return nil, invalid(errParameters, "The body has no resource.")
	}
	return found, nil
}

// validation is the answer to $validate, which is an OperationOutcome whether or not the resource is valid.
func (x *operations) validation(a *answer) (*answer, error) {
	if a.status/100 == 5 || !a.succeeded() && a.status != http.StatusBadRequest &&
		a.status != http.StatusPreconditionFailed && a.status != http.StatusUnprocessableEntity {
		return nil, failedOperation(a, nil)
	}
	if err := a.requireJSON(); err != nil {
		return nil, err
	}
	res, err := x.at.parse(a.body)
	if err != nil {
		return nil, err
	}
	if res.Type != "OperationOutcome" {
		return nil, withheld(errOperationAnswer)
	}
	return newAnswer(a.status, a.body), nil
}

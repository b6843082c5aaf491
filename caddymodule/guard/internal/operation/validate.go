package operation

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// validate answers $validate for a resource that the client could write: by create or by update, either will do. What
// is wrong with it may be that something it refers to is not there, so that is judged as of a write.
func (x *Calls) validate(ctx context.Context, c message.Call, i interaction.Interaction, op Operation) (*message.Answer, error) {
	text, err := validated(c, i)
	if err != nil {
		return nil, err
	}
	res, err := resource.Parse(text, x.At.Base)
	if err != nil || i.Type != "" && res.Type != i.Type {
		return nil, message.Invalid(errParameters, "The body is no resource of the type in the path.")
	}
	grants := append(x.Judge.Rights().For(res.Type, smart.Create), x.Judge.Rights().For(res.Type, smart.Update)...)
	if len(grants) == 0 {
		return nil, x.refusedOperation(op, interaction.Interaction{Type: res.Type})
	}
	if i.ID != "" {
		if err := x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants); err != nil {
			return nil, err
		}
	}
	if err := x.Writes.CheckNew(ctx, res, text, grants); err != nil {
		return nil, err
	}
	a, err := x.Server.Ask(ctx, operationCall(c))
	if err != nil {
		return nil, err
	}
	return x.validation(a)
}

// validated is the resource in the body, by itself or in Parameters.
func validated(c message.Call, i interaction.Interaction) ([]byte, error) {
	if err := message.CheckNames("$validate", i.Parameters, []string{"mode", "profile", "_format", "_pretty"}); err != nil {
		return nil, err
	}
	var body struct {
		ResourceType string
		Parameter    []struct {
			Name     string
			Resource json.RawMessage
		}
	}
	if err := json.Unmarshal(c.Body, &body); err != nil {
		return nil, message.Invalid(errParameters, "The body is no resource.")
	}
	if body.ResourceType != "Parameters" {
		return c.Body, nil
	}
	var found []byte
	for _, p := range body.Parameter {
		switch {
		case p.Name == "resource" && found == nil && p.Resource != nil:
			found = p.Resource
		case p.Name != "mode" && p.Name != "profile" || p.Resource != nil:
			return nil, message.Forbidden(message.ErrOracle, "$validate takes one resource, mode and profile here.")
		}
	}
	if found == nil {
		return nil, message.Invalid(errParameters, "The body has no resource.")
	}
	return found, nil
}

// validation is the answer to $validate, which is an OperationOutcome whether or not the resource is valid.
func (x *Calls) validation(a *message.Answer) (*message.Answer, error) {
	if a.Status/100 == 5 || !a.Succeeded() && a.Status != http.StatusBadRequest &&
		a.Status != http.StatusPreconditionFailed && a.Status != http.StatusUnprocessableEntity {
		return nil, FailedOperation(a, nil)
	}
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	res, err := x.At.Parse(a.Body)
	if err != nil {
		return nil, err
	}
	if res.Type != "OperationOutcome" {
		return nil, message.Withheld(errOperationAnswer)
	}
	return message.NewAnswer(a.Status, a.Body), nil
}

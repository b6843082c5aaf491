package operation

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Passes reports whether an operation goes to the next handler as it is, and its answer to the client.
func (x *Calls) Passes(method string, i interaction.Interaction) bool {
	op, ok := x.List.Find(i)
	if !ok || op.Name == operationExport || op.Changes() && method != http.MethodPost || x.isBeyond(op) {
		return false
	}
	return op.Reach == TokenReach && x.isOpen(op) || op.Reach != TokenReach && x.isWhole(op, i)
}

// isBeyond reports whether an operation delivers what the scopes might not allow.
func (x *Calls) isBeyond(op Operation) bool {
	return delivering[op.Name] && !x.Judge.Rights().Whole(smart.AnyType, message.ReadSearch)
}

// Operation answers an operation.
func (x *Calls) Operation(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	if err := paging.RefusePaging(i.Parameters); err != nil {
		return nil, err
	}
	op, ok := x.List.Find(i)
	switch {
	case !ok:
		return nil, message.Forbidden(ErrOperation, "The operation %s is not one of those that may be called here.", i.Operation)
	case x.isBeyond(op):
		return nil, message.Beyond(x.Judge.Rights(), message.ErrScope, "%s takes scopes to read and search everything.", op.Name)
	case op.Changes() && c.Method != http.MethodPost:
		return nil, &guard.Error{Status: http.StatusMethodNotAllowed, Description: "An operation that changes something is called by POST.", Err: ErrOperation}
	case op.Name == operationExport:
		return x.Exports.Export(ctx, c, i)
	case op.Reach == TokenReach:
		return x.openOperation(ctx, c, op)
	case op.Name == "$validate" && op.Reach != WholeReach:
		return x.validate(ctx, c, i, op)
	case op.Reach == PatientReach:
		return x.judgedOperation(ctx, c, i, op, paging.Place{})
	}
	return x.confinedOperation(ctx, c, i, op, paging.Place{})
}

// confinedOperation answers an operation whose answer is about nothing that the scopes do not cover: the resource on
// which it is called, or a whole type.
//
// Where policies may deny resources, the response is judged nevertheless.
func (x *Calls) confinedOperation(ctx context.Context, c message.Call, i interaction.Interaction, op Operation, at paging.Place) (*message.Answer, error) {
	onInstance := op.Reach == InstanceReach && i.ID != ""
	whole := x.isWhole(op, i)
	switch {
	case !whole && !onInstance:
		return nil, x.refusedWhole(op, i)
	case x.Judge.MayDeny() && !onInstance && op.Name == "$meta":
		return nil, message.Forbidden(message.ErrOracle, "$meta is possible on a resource only where rules of this server judge each resource: that of a type or of the system would tell of others.")
	case x.Judge.MayDeny() && !onInstance:
		return x.judgedOperation(ctx, c, i, op, at)
	case !whole || x.Judge.MayDeny():
		if err := x.checkInstance(ctx, op, i); err != nil {
			return nil, err
		}
	}
	asked := at.Call(operationCall(c))
	a, err := x.Server.Ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, FailedOperation(a, c.Said())
	}
	if a.IsJSON() {
		links := address.LinkFinder{Seal: func(links message.Links) (message.Links, error) {
			return x.Pages.SealLinks(ctx, c, asked.Path, links)
		}}
		if a.Body, err = links.Append(nil, a.Body); err != nil {
			return nil, message.NotRewritten(err)
		}
	}
	return a, nil
}

// OperationPage answers a link to a page of an operation's answer. All is judged again.
func (x *Calls) OperationPage(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, _ string) (*message.Answer, error) {
	op, ok := x.List.Find(i)
	switch {
	case !ok, len(at.Places) != 1, op.Reach == TokenReach, op.Name == operationExport:
		return nil, message.NotFound()
	case op.Reach == PatientReach:
		return x.judgedOperation(ctx, c, i, op, at.Places[0])
	}
	return x.confinedOperation(ctx, c, i, op, at.Places[0])
}

// isOpen reports whether the token may call an operation for which any valid one will do. Operations on terminology
// take one of the scopes that the site has set for them.
func (x *Calls) isOpen(op Operation) bool {
	return !isOnTerminology(op.Name) || len(x.ExpandScopes) == 0 || x.Judge.Rights().HasOne(x.ExpandScopes)
}

// isOnTerminology reports whether an operation is about definitions alone, which any token may ask about by default.
func isOnTerminology(name string) bool {
	defaults := defaultOperations[name]
	return len(defaults) > 0 && defaults[0].Reach == TokenReach
}

// AsksDefinitions reports whether an interaction is an operation about definitions alone.
func AsksDefinitions(i interaction.Interaction) bool {
	return i.Kind == interaction.Operation && isOnTerminology(i.Operation)
}

// openOperation answers an operation that needs no more than a token, as an entry of a batch.
func (x *Calls) openOperation(ctx context.Context, c message.Call, op Operation) (*message.Answer, error) {
	if !x.isOpen(op) {
		return nil, message.Forbidden(message.ErrScope, "The token has none of the scopes that %s takes here.", op.Name).Lifted(strings.Join(x.ExpandScopes, " "))
	}
	a, err := x.Server.Ask(ctx, operationCall(c))
	if err != nil {
		return nil, err
	}
	return a, nil
}

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
	body, err := resource.Parse(c.Body)
	if err != nil {
		return nil, message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	if body.Type != "Parameters" {
		return c.Body, nil
	}
	list, ok := body.Member("parameter")
	if !ok {
		list = []byte("[]")
	}
	var found []byte
	for p := range resource.Elements(list) {
		name, _ := resource.Field(p, "name")
		text, isResource := resource.Field(p, "resource")
		switch said := resource.Text(name); {
		case said == "resource" && found == nil && isResource:
			found = text
		case said != "mode" && said != "profile" || isResource:
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

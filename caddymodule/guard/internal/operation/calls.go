package operation

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// ErrOperation says that an operation is not one of those that may be called, or not in this way.
var ErrOperation = errors.New("operation not allowed")

// exporter begins exports.
type exporter interface {
	Export(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error)
}

// Calls are the operations that one request needs.
type Calls struct {
	Server       *fhirserver.Server // asks the FHIR server
	Judge        *judge.Judge       // judges what it answers
	At           message.Addresses  // names what it holds as clients know it
	Pages        paging.Pages       // seals links to pages
	Writes       *write.Writes      // what $validate asks about
	Exports      exporter           // begins $export
	List         Operations         // that may be called
	ExpandScopes []string           // operations on terminology require one of these
	Shared       access.Shared      // are the rules of types outside of the compartment
	Limit        int64              // of an answer
}

// isWhole reports whether one scope is about all that an operation can answer with.
func (x *Calls) isWhole(op Operation, i interaction.Interaction) bool {
	// What is judged resource by resource may be of any type.
	if op.Reach == PatientReach {
		return x.Judge.Rights().Whole(smart.AnyType, op.Permission)
	}
	return x.isOverType(op, i.Type)
}

// isOverType reports whether one scope covers all resources of a type. Site policies may still deny some of them.
func (x *Calls) isOverType(op Operation, resourceType string) bool {
	return x.Judge.Rights().WholeTypes("", op.Permission).Has(resourceType)
}

// operationCall is a client's call of an operation, without headers that could change what is answered.
func operationCall(c message.Call) message.Call {
	called := message.Get(c.Path, c.Query)
	if c.Method == http.MethodPost {
		called.Method, called.Body = http.MethodPost, c.Body
	}
	if len(called.Body) > 0 {
		called.Header = http.Header{"Content-Type": {message.TypeJSON}}
	}
	return called
}

// checkInstance checks that the resource on which an operation is called is covered. One that is not gets the answer
// of one that is not there.
func (x *Calls) checkInstance(ctx context.Context, op Operation, i interaction.Interaction) error {
	grants := x.Judge.Rights().For(i.Type, op.Permission)
	if len(grants) == 0 {
		return x.refusedOperation(op, i)
	}
	return x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants)
}

// checkCovered asks for a resource, and checks that one of the grants covers it.
func (x *Calls) checkCovered(ctx context.Context, of interaction.Reference, grants []access.Grant) error {
	a, err := x.Server.Ask(ctx, message.Get(of.String(), ""))
	if err != nil {
		return err
	}
	_, err = x.Judge.Resource(ctx, of, grants, a)
	return err
}

// refusedOperation says that no scope allows an operation.
func (x *Calls) refusedOperation(op Operation, i interaction.Interaction) error {
	refusal := message.Forbidden(message.ErrScope, "No scope allows %s on %s: it needs the permission %s.", op.Name, typeOf(i), op.Permission)
	if missing := x.Judge.Rights().Missing; missing != "" {
		refusal = message.Forbidden(message.ErrScope, "%s", missing)
	}
	return refusal.Lifted(x.Judge.Rights().Lacking(i.Type, op.Permission, false))
}

// refusedWhole says that no scope reaches as far as an operation.
func (x *Calls) refusedWhole(op Operation, i interaction.Interaction) error {
	return message.Forbidden(message.ErrScope, "%s on %s needs a scope over all of its resources, with the permission %s.", op.Name, typeOf(i), op.Permission).
		Lifted(x.Judge.Rights().Lacking(i.Type, op.Permission, true))
}

// typeOf names what an operation is called on.
func typeOf(i interaction.Interaction) string {
	if i.Type == "" {
		return "the system"
	}
	return i.Type
}

// FailedOperation is what is answered when the FHIR server refuses an operation, to what the client has sent.
func FailedOperation(a *message.Answer, sent message.Said) error {
	switch {
	case a.Status/100 == 5, a.Status == http.StatusTooManyRequests:
		return message.Failed(a)
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return message.NotFound()
	}
	refusal := message.Invalid(ErrOperation, "The FHIR server refuses the operation (%d).", a.Status)
	refusal.Description = message.Explained(refusal.Description, a, sent)
	return refusal
}

// answerGrants are the grants for what an operation answers with: those that give on its type what the operation needs
// in order to read.
func (x *Calls) answerGrants(op Operation, resourceType string) []access.Grant {
	p := op.Permission & message.ReadSearch
	if p == 0 {
		p = smart.Read
	}
	return slices.Clip(x.Judge.Rights().For(resourceType, p))
}

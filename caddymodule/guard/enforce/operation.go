package enforce

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// ErrOperation says that an operation is not one of those that may be called, or not in this way.
var ErrOperation = errors.New("operation not allowed")

// operationAsking asks the FHIR server.
type operationAsking interface {
	Ask(ctx context.Context, c call) (*answer, error)
}

// operationJudging says what the token may see.
type operationJudging interface {
	Rights() *access.Rights
	MayDeny() bool
	Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error)
	Resource(ctx context.Context, of interaction.Reference, grants []access.Grant, a *answer) (resource.Resource, error)
}

// creating says what could be written.
type creating interface {
	CheckNew(ctx context.Context, res resource.Resource, text []byte, grants []access.Grant) error
}

// exporting begins exports.
type exporting interface {
	Export(ctx context.Context, c call, i interaction.Interaction) (*answer, error)
}

// operations are the operations that one request needs.
type operations struct {
	server       operationAsking
	judge        operationJudging
	at           addresses
	pages        pages
	writes       creating // what $validate asks about
	exports      exporting
	list         Operations // that may be called
	expandScopes []string   // of which operations on terminology take one
	shared       access.Shared
	limit        int64 // of an answer
}

// passes reports whether an operation goes to the next handler as it is, and its answer to the client.
func (x *operations) passes(method string, i interaction.Interaction) bool {
	op, ok := x.list.find(i)
	if !ok || op.Name == operationExport || op.changes() && method != http.MethodPost || x.isBeyond(op) {
		return false
	}
	return op.Reach == TokenReach && x.isOpen(op) || op.Reach != TokenReach && x.isWhole(op, i)
}

// isBeyond reports whether an operation delivers what the scopes might not allow.
func (x *operations) isBeyond(op Operation) bool {
	return delivering[op.Name] && x.judge.Rights().All()&readSearch != readSearch
}

// isWhole reports whether one scope is about all that an operation can answer with.
func (x *operations) isWhole(op Operation, i interaction.Interaction) bool {
	// What is judged resource by resource may be of any type.
	if op.Reach == PatientReach {
		return x.judge.Rights().All()&op.Permission == op.Permission
	}
	return x.isOverType(op, i.Type)
}

// isOverType reports whether one scope is about all resources of a type, though a site's rules may be about each.
func (x *operations) isOverType(op Operation, resourceType string) bool {
	return slices.ContainsFunc(x.judge.Rights().For(resourceType, op.Permission), access.Grant.Whole)
}

// operation answers an operation.
func (x *operations) operation(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	if err := refusePaging(i.Parameters); err != nil {
		return nil, err
	}
	op, ok := x.list.find(i)
	switch {
	case !ok:
		return nil, forbidden(ErrOperation, "The operation %s is not one of those that may be called here.", i.Operation)
	case x.isBeyond(op):
		return nil, beyond(x.judge.Rights(), ErrScope, "%s takes scopes to read and search everything.", op.Name)
	case op.changes() && c.method != http.MethodPost:
		return nil, &guard.Error{Status: http.StatusMethodNotAllowed, Description: "An operation that changes something is called by POST.", Err: ErrOperation}
	case op.Name == operationExport:
		return x.exports.Export(ctx, c, i)
	case op.Reach == TokenReach:
		return x.openOperation(ctx, c, op)
	case op.Name == "$validate" && op.Reach != WholeReach:
		return x.validate(ctx, c, i, op)
	case op.Reach == PatientReach:
		return x.judgedOperation(ctx, c, i, op, place{})
	}
	return x.confinedOperation(ctx, c, i, op, place{})
}

// confinedOperation answers an operation whose answer is about nothing that the scopes do not cover: the resource on
// which it is called, or a whole type.
//
// A site's rules about resources, if it has some, are kept by judging it nevertheless.
func (x *operations) confinedOperation(ctx context.Context, c call, i interaction.Interaction, op Operation, at place) (*answer, error) {
	onInstance := op.Reach == InstanceReach && i.ID != ""
	whole := x.isWhole(op, i)
	switch {
	case !whole && !onInstance:
		return nil, x.refusedWhole(op, i)
	case x.judge.MayDeny() && !onInstance:
		return x.judgedOperation(ctx, c, i, op, at)
	case !whole || x.judge.MayDeny():
		if err := x.checkInstance(ctx, op, i); err != nil {
			return nil, err
		}
	}
	asked := operationCall(c)
	if !at.isFirst() {
		asked = get(at.Path, at.Query)
	}
	a, err := x.server.Ask(ctx, asked)
	if err != nil {
		return nil, err
	}
	if !a.succeeded() {
		return nil, failedOperation(a, c.said())
	}
	if a.isJSON() {
		at, links, err := x.pages.sealLinks(ctx, c, asked.path, a.body)
		if err != nil {
			return nil, err
		}
		if links != nil {
			a.body = slices.Concat(a.body[:at.from], links, a.body[at.to:])
		}
	}
	return x.at.localize(a), nil
}

// operationCall is a client's call of an operation, without headers that could change what is answered.
func operationCall(c call) call {
	called := get(c.path, c.query)
	if c.method == http.MethodPost {
		called.method, called.body = http.MethodPost, c.body
	}
	if len(called.body) > 0 {
		called.header = http.Header{"Content-Type": {typeJSON}}
	}
	return called
}

// checkInstance checks that the resource on which an operation is called is covered. One that is not gets the answer
// of one that is not there.
func (x *operations) checkInstance(ctx context.Context, op Operation, i interaction.Interaction) error {
	grants := x.judge.Rights().For(i.Type, op.Permission)
	if len(grants) == 0 {
		return x.refusedOperation(op, i)
	}
	return x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants)
}

// checkCovered asks for a resource, and checks that one of the grants covers it.
func (x *operations) checkCovered(ctx context.Context, of interaction.Reference, grants []access.Grant) error {
	a, err := x.server.Ask(ctx, get(of.String(), ""))
	if err != nil {
		return err
	}
	_, err = x.judge.Resource(ctx, of, grants, a)
	return err
}

// refusedOperation says that no scope allows an operation.
func (x *operations) refusedOperation(op Operation, i interaction.Interaction) error {
	refusal := forbidden(ErrScope, "No scope allows %s on %s: it needs the permission %s.", op.Name, typeOf(i), op.Permission)
	if missing := x.judge.Rights().Missing; missing != "" {
		refusal = forbidden(ErrScope, "%s", missing)
	}
	return refusal.Lifted(x.judge.Rights().Lacking(i.Type, op.Permission, false))
}

// refusedWhole says that no scope reaches as far as an operation.
func (x *operations) refusedWhole(op Operation, i interaction.Interaction) error {
	return forbidden(ErrScope, "%s on %s needs a scope over all of its resources, with the permission %s.", op.Name, typeOf(i), op.Permission).
		Lifted(x.judge.Rights().Lacking(i.Type, op.Permission, true))
}

// typeOf names what an operation is called on.
func typeOf(i interaction.Interaction) string {
	if i.Type == "" {
		return "the system"
	}
	return i.Type
}

// failedOperation is what is answered when the FHIR server refuses an operation, to what the client has sent.
func failedOperation(a *answer, sent said) error {
	switch {
	case a.status/100 == 5, a.status == http.StatusTooManyRequests:
		return failed(a)
	case a.status == http.StatusNotFound, a.status == http.StatusGone:
		return notFound()
	}
	refusal := invalid(ErrOperation, "The FHIR server refuses the operation (%d).", a.status)
	refusal.Description = explained(refusal.Description, a, sent)
	return refusal
}

// answerGrants are the grants for what an operation answers with: those that give on its type what the operation needs
// in order to read.
func (x *operations) answerGrants(op Operation, resourceType string) []access.Grant {
	p := op.Permission & readSearch
	if p == 0 {
		p = smart.Read
	}
	return slices.Clip(x.judge.Rights().For(resourceType, p))
}

// Package operation answers operations, of which it has a list. What is not on it is refused.
//
//	operations.go       the list, and operations whose answer is about what the scopes cover as a whole, about no patient,
//	                    or about what could be written
//	judgedoperation.go  operations whose answer is judged resource by resource, page by page
//
// References: FHIR R4, Extended Operations (operations.html).
package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Reach says how far scopes must reach for an operation, and so how much of it is judged.
type Reach string

const (
	// TokenReach is for operations that any valid token may call. Request and answer pass.
	TokenReach Reach = "token"
	// InstanceReach is for those that take a scope which covers the resource on which they are called. The answer passes,
	// since it is about that resource alone. Called on a type or the system they need what [WholeReach] does.
	InstanceReach Reach = "instance"
	// PatientReach is for those that take any scope about the type, which must cover the resource if they are called on
	// one. Each resource of the answer is judged as one that was asked for by itself.
	PatientReach Reach = "patient"
	// WholeReach is for those that take a scope about all resources of the type, or of all types if they are called on
	// the system. The answer passes.
	WholeReach Reach = "whole"
	// NoReach is for those that nobody may call.
	NoReach Reach = "off"
)

// Operation is an operation that may be called.
type Operation struct {
	// Name is that in the path, with its dollar sign, such as $everything.
	Name string
	// Reach says how far scopes must reach.
	Reach Reach
	// Permission is what the scopes must permit on the type, and with [PatientReach] on the type of each resource of the
	// answer. With one of c, u and d the operation changes something, and is called by POST only.
	Permission smart.Permission
	// Types are the types on which it may be called. Empty: on all, and on the system.
	Types []string
}

// Operations are those that may be called, by name. All others are refused.
type Operations map[string][]Operation

// operationExport is decided by rules of its own: see package export.
const operationExport = "$export"

// delivering are operations that hand over what a Subscription of somebody else's sends, or have it sent, or have a message
// carried out. However a site lists them, they take scopes to read and search everything.
var delivering = map[string]bool{
	"$events": true, "$get-ws-binding-token": true, "$process-message": true, "$trigger-subscription": true,
}

// defaultOperations are those that a site does not set.
var defaultOperations = Operations{
	"$everything":   {{Name: "$everything", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"Patient", "Encounter"}}},
	"$lastn":        {{Name: "$lastn", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"Observation"}}},
	"$docref":       {{Name: "$docref", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"DocumentReference"}}},
	"$validate":     {{Name: "$validate", Reach: PatientReach, Permission: smart.Create | smart.Update}},
	"$meta":         {{Name: "$meta", Reach: InstanceReach, Permission: smart.Read}},
	operationExport: {{Name: operationExport, Reach: WholeReach, Permission: message.ReadSearch, Types: []string{"", "Patient", "Group"}}},

	"$expand":              terminologyOperation("$expand", "ValueSet"),
	"$validate-code":       terminologyOperation("$validate-code", "ValueSet", "CodeSystem"),
	"$batch-validate-code": terminologyOperation("$batch-validate-code", "ValueSet"),
	"$lookup":              terminologyOperation("$lookup", "CodeSystem"),
	"$subsumes":            terminologyOperation("$subsumes", "CodeSystem"),
	"$find-matches":        terminologyOperation("$find-matches", "CodeSystem"),
	"$translate":           terminologyOperation("$translate", "ConceptMap"),
	"$versions":            terminologyOperation("$versions", ""),
}

func terminologyOperation(name string, types ...string) []Operation {
	return []Operation{{Name: name, Reach: TokenReach, Types: types}}
}

// NewOperations returns the default operations with a site's own: what it says of a name takes the place of the default.
func NewOperations(own ...Operation) Operations {
	o := maps.Clone(defaultOperations)
	for _, op := range own {
		delete(o, op.Name)
	}
	for _, op := range own {
		o[op.Name] = append(o[op.Name], op)
	}
	return o
}

// Find is the operation that an interaction calls.
func (o Operations) Find(i interaction.Interaction) (Operation, bool) {
	if o == nil {
		o = defaultOperations
	}
	for _, op := range o[i.Operation] {
		if len(op.Types) == 0 || slices.Contains(op.Types, i.Type) {
			return op, op.Reach != NoReach
		}
	}
	return Operation{}, false
}

// Changes reports whether the operation changes what is stored, and so must not be a GET (R4 operations.html#3.2.0.1).
func (op Operation) Changes() bool { return op.Permission&^message.ReadSearch != 0 }

var errOperationLine = errors.New("want <$name> patient|instance|whole <cruds> [<Type>...], <$name> token [<Type>...] or <$name> off")

// ParseOperation reads what a site says of an operation:
//
//	<$name> patient|instance|whole <cruds> [<Type>...]
//	<$name> token [<Type>...]
//	<$name> off
func ParseOperation(words ...string) (Operation, error) {
	if len(words) < 2 {
		return Operation{}, errOperationLine
	}
	op := Operation{Name: words[0], Reach: Reach(words[1])}
	if i, err := interaction.Parse("GET", op.Name, "", nil); err != nil || i.Operation != op.Name {
		return op, fmt.Errorf("%q is no name of an operation: %w", op.Name, errOperationLine)
	}
	if op.Name == operationExport && op.Reach != NoReach {
		return op, errors.New("$export takes system scopes over whole types, which cannot be changed: off alone may be said of it")
	}
	return op.with(words[2:])
}

// with reads the words behind the reach.
func (op Operation) with(words []string) (Operation, error) {
	switch op.Reach {
	case TokenReach:
	case NoReach:
		if len(words) > 0 {
			return op, errOperationLine
		}
	case InstanceReach, PatientReach, WholeReach:
		if len(words) == 0 {
			return op, errOperationLine
		}
		scope, ok := smart.ParseResourceScope("user/*." + words[0])
		if !ok || scope.Query != "" {
			return op, fmt.Errorf("%q are no permissions: %w", words[0], errOperationLine)
		}
		op.Permission, words = scope.Permission, words[1:]
	default:
		return op, fmt.Errorf("%q: %w", op.Reach, errOperationLine)
	}
	for _, name := range words {
		if !interaction.IsType(name) {
			return op, fmt.Errorf("%q is no resource type of FHIR R4", name)
		}
		op.Types = append(op.Types, name)
	}
	return op, nil
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

// exporter begins exports.
type exporter interface {
	Export(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error)
}

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
	return x.Server.Ask(ctx, operationCall(c))
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

// ErrOperation says that an operation is not one of those that may be called, or not in this way.
var ErrOperation = errors.New("operation not allowed")

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

// theSystem names what an operation without a type is called on.
const theSystem = "the system"

// refusedOperation says that no scope allows an operation.
func (x *Calls) refusedOperation(op Operation, i interaction.Interaction) error {
	refusal := message.Forbidden(message.ErrScope, "No scope allows %s on %s: it needs the permission %s.", op.Name, cmp.Or(i.Type, theSystem), op.Permission)
	if missing := x.Judge.Rights().Missing; missing != "" {
		refusal = message.Forbidden(message.ErrScope, "%s", missing)
	}
	return refusal.Lifted(x.Judge.Rights().Lacking(i.Type, op.Permission, false))
}

// refusedWhole says that no scope reaches as far as an operation.
func (x *Calls) refusedWhole(op Operation, i interaction.Interaction) error {
	return message.Forbidden(message.ErrScope, "%s on %s needs a scope over all of its resources, with the permission %s.", op.Name, cmp.Or(i.Type, theSystem), op.Permission).
		Lifted(x.Judge.Rights().Lacking(i.Type, op.Permission, true))
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
	return slices.Clip(x.Judge.Rights().For(resourceType, cmp.Or(op.Permission&message.ReadSearch, smart.Read)))
}

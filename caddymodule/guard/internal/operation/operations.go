// Package operation answers the operations that are listed as permitted. All other operations are rejected.
//
//	operations.go       the list, and operations with a response that the scopes cover completely, that involve no
//	                    patient, or that validate a write
//	judgedoperation.go  operations with a response that is judged resource by resource, page by page
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

// ScopeRequirement determines which scopes an operation requires and which part of its response is judged.
type ScopeRequirement string

const (
	// RequireToken permits an operation for any valid token. Request and response pass unjudged.
	RequireToken ScopeRequirement = "token"
	// RequireInstance requires a scope that covers the resource on which the operation is called. The response passes unjudged,
	// because it concerns only that resource. For calls on a type or the system, it is equivalent to [RequireAll].
	RequireInstance ScopeRequirement = "instance"
	// RequirePatient requires any scope for the type. If the operation is called on a resource, the scope must cover it. Each
	// resource in the response is judged as if it were requested directly.
	RequirePatient ScopeRequirement = "patient"
	// RequireAll requires a scope for all resources of the type, or of all types on the system. The response passes unjudged.
	RequireAll ScopeRequirement = "whole"
	// Disabled disables an operation.
	Disabled ScopeRequirement = "off"
)

// Operation is a permitted operation.
type Operation struct {
	// Name is the name in the path, with the dollar sign, such as $everything.
	Name string
	// Requirement determines which scopes are required.
	Requirement ScopeRequirement
	// Permission is the permission that the scopes must grant on the type and, with [RequirePatient], on the type of each
	// resource in the response. An operation with c, u or d changes data and requires POST.
	Permission smart.Permission
	// Types are the types on which the operation may be called. Default: all types and the system.
	Types []string
}

// Operations are the permitted operations by name. All others are rejected.
type Operations map[string][]Operation

// operationExport is handled by package export.
const operationExport = "$export"

// notifyingOperations are operations that return or trigger the notifications of another client's Subscription, or process a
// message. Whatever the site's configuration, they require scopes to read and search everything.
var notifyingOperations = map[string]bool{
	"$events": true, "$get-ws-binding-token": true, "$process-message": true, "$trigger-subscription": true,
}

// defaultOperations are the operations that are permitted unless a site overrides them.
var defaultOperations = Operations{
	"$everything":   {{Name: "$everything", Requirement: RequirePatient, Permission: message.ReadSearch, Types: []string{"Patient", "Encounter"}}},
	"$lastn":        {{Name: "$lastn", Requirement: RequirePatient, Permission: message.ReadSearch, Types: []string{"Observation"}}},
	"$docref":       {{Name: "$docref", Requirement: RequirePatient, Permission: message.ReadSearch, Types: []string{"DocumentReference"}}},
	"$validate":     {{Name: "$validate", Requirement: RequirePatient, Permission: smart.Create | smart.Update}},
	"$meta":         {{Name: "$meta", Requirement: RequireInstance, Permission: smart.Read}},
	operationExport: {{Name: operationExport, Requirement: RequireAll, Permission: message.ReadSearch, Types: []string{"", "Patient", "Group"}}},

	"$expand":              terminologyOperation("$expand", "ValueSet"),
	"$validate-code":       terminologyOperation("$validate-code", "ValueSet", "CodeSystem"),
	"$batch-validate-code": terminologyOperation("$batch-validate-code", "ValueSet"),
	"$related":             terminologyOperation("$related", "ValueSet"),
	"$compare":             terminologyOperation("$compare", "ValueSet"),
	"$lookup":              terminologyOperation("$lookup", "CodeSystem"),
	"$subsumes":            terminologyOperation("$subsumes", "CodeSystem"),
	"$find-matches":        terminologyOperation("$find-matches", "CodeSystem"),
	"$translate":           terminologyOperation("$translate", "ConceptMap"),
	"$versions":            terminologyOperation("$versions", ""),
}

func terminologyOperation(name string, types ...string) []Operation {
	return []Operation{{Name: name, Requirement: RequireToken, Types: types}}
}

// NewOperations returns the default operations and the site-specific ones in own, which replace defaults of the same name.
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

// Find returns the operation that an interaction calls.
func (o Operations) Find(i interaction.Interaction) (Operation, bool) {
	if o == nil {
		o = defaultOperations
	}
	for _, op := range o[i.Operation] {
		if len(op.Types) == 0 || slices.Contains(op.Types, i.Type) {
			return op, op.Requirement != Disabled
		}
	}
	return Operation{}, false
}

// ChangesData reports whether the operation changes stored data, so GET is not permitted (R4 operations.html#3.2.0.1).
func (op Operation) ChangesData() bool { return op.Permission&^message.ReadSearch != 0 }

var errInvalidDefinition = errors.New("expected <$name> patient|instance|whole <cruds> [<Type>...], <$name> token [<Type>...] or <$name> off")

// ParseOperation parses a site's definition of an operation:
//
//	<$name> patient|instance|whole <cruds> [<Type>...]
//	<$name> token [<Type>...]
//	<$name> off
func ParseOperation(words ...string) (Operation, error) {
	if len(words) < 2 {
		return Operation{}, errInvalidDefinition
	}
	op := Operation{Name: words[0], Requirement: ScopeRequirement(words[1])}
	if i, err := interaction.Parse("GET", op.Name, "", nil); err != nil || i.Operation != op.Name {
		return op, fmt.Errorf("invalid operation name %q: %w", op.Name, errInvalidDefinition)
	}
	if op.Name == operationExport && op.Requirement != Disabled {
		return op, errors.New("the scope requirement of $export cannot be changed; use off to disable it")
	}
	return op.parseWords(words[2:])
}

// parseWords parses the words after the requirement.
func (op Operation) parseWords(words []string) (Operation, error) {
	switch op.Requirement {
	case RequireToken:
	case Disabled:
		if len(words) > 0 {
			return op, errInvalidDefinition
		}
	case RequireInstance, RequirePatient, RequireAll:
		if len(words) == 0 {
			return op, errInvalidDefinition
		}
		scope, ok := smart.ParseResourceScope("user/*." + words[0])
		if !ok || scope.Query != "" {
			return op, fmt.Errorf("invalid permissions %q: %w", words[0], errInvalidDefinition)
		}
		op.Permission, words = scope.Permission, words[1:]
	default:
		return op, fmt.Errorf("%q: %w", op.Requirement, errInvalidDefinition)
	}
	for _, name := range words {
		if !interaction.IsType(name) {
			return op, fmt.Errorf("%q is not a resource type of FHIR R4", name)
		}
		op.Types = append(op.Types, name)
	}
	return op, nil
}

// Handler answers the operations of one request.
type Handler struct {
	Server           *fhirserver.Server // sends requests to the FHIR server
	Judge            *judge.Judge       // judges responses from the FHIR server
	Addresses        message.Addresses  // public addresses of the FHIR API
	Pages            paging.Pages       // seals page links
	WriteHandler     *write.Handler     // checks writes for $validate
	Exporter         exporter           // starts $export
	Operations       Operations         // permitted operations
	ExpandScopes     []string           // alternative scopes for terminology operations; a token needs one of them
	TypeRules        access.TypeRules   // rules for types outside of compartments
	MaxResponseBytes int64              // maximum total size of a response in bytes
}

type exporter interface {
	Export(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error)
}

// MayForward reports whether the request and response of an operation pass unjudged.
func (x *Handler) MayForward(method string, i interaction.Interaction) bool {
	op, ok := x.Operations.Find(i)
	if !ok || op.Name == operationExport || op.ChangesData() && method != http.MethodPost || x.mayExceedScopes(op) {
		return false
	}
	return op.Requirement == RequireToken && x.mayCallWithToken(op) || op.Requirement != RequireToken && x.isFullyCovered(op, i)
}

// mayExceedScopes reports whether an operation may return more than the scopes allow.
func (x *Handler) mayExceedScopes(op Operation) bool {
	return notifyingOperations[op.Name] && !x.Judge.Rights().IsUnrestricted(smart.AnyType, message.ReadSearch)
}

// Handle answers an operation.
func (x *Handler) Handle(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	if err := paging.RejectPagingLinks(i.Parameters); err != nil {
		return nil, err
	}
	op, ok := x.Operations.Find(i)
	switch {
	case !ok:
		return nil, message.Forbidden(ErrOperationNotAllowed, "The operation %s is not permitted.", i.Operation)
	case x.mayExceedScopes(op):
		return nil, message.UnrestrictedScopeRequired(x.Judge.Rights(), message.ErrInsufficientScope, "%s requires scopes to read and search all resources.", op.Name)
	case op.ChangesData() && c.Method != http.MethodPost:
		return nil, &guard.Error{Status: http.StatusMethodNotAllowed, Description: "Operations that change data must be called with POST.", Err: ErrOperationNotAllowed}
	case op.Name == operationExport:
		return x.Exporter.Export(ctx, c, i)
	case op.Requirement == RequireToken:
		return x.handleUnjudged(ctx, c, op)
	case op.Name == "$validate" && op.Requirement != RequireAll:
		return x.handleValidate(ctx, c, i, op)
	case op.Requirement == RequirePatient:
		return x.handleJudged(ctx, c, i, op, paging.BranchPosition{})
	}
	return x.handleConfined(ctx, c, i, op, paging.BranchPosition{})
}

// handleConfined answers an operation that returns only data that the scopes cover: of the resource on which it is
// called, or of an entire type.
//
// If policies may deny resources, the response is judged nevertheless.
func (x *Handler) handleConfined(ctx context.Context, c message.Call, i interaction.Interaction, op Operation, at paging.BranchPosition) (*message.Response, error) {
	onInstance := op.Requirement == RequireInstance && i.ID != ""
	isFullyCovered := x.isFullyCovered(op, i)
	switch {
	case !isFullyCovered && !onInstance:
		return nil, x.unrestrictedScopeRequired(op, i)
	case x.Judge.MayDeny() && !onInstance && op.Name == "$meta":
		return nil, message.Forbidden(message.ErrDisclosure, "With the access policies of this server, $meta is only supported on a single resource: on a type or the system, the response could reveal other resources.")
	case x.Judge.MayDeny() && !onInstance:
		return x.handleJudged(ctx, c, i, op, at)
	case !isFullyCovered || x.Judge.MayDeny():
		if err := x.checkInstance(ctx, op, i); err != nil {
			return nil, err
		}
	}
	serverCall := at.Call(newOperationCall(c))
	a, err := x.Server.Do(ctx, serverCall)
	if err != nil {
		return nil, err
	}
	if !a.IsSuccess() {
		return nil, Failure(a, c.SentTerms())
	}
	if a.IsJSON() {
		links := address.LinkReplacer{Seal: func(links message.Links) (message.Links, error) {
			return x.Pages.SealLinks(ctx, c, serverCall.Path, links)
		}}
		if a.Body, err = links.Append(nil, a.Body); err != nil {
			return nil, message.NewRewriteError(err)
		}
	}
	return a, nil
}

// HandlePage answers a link to a page of an operation's response. All permissions are checked again.
func (x *Handler) HandlePage(ctx context.Context, c message.Call, i interaction.Interaction, at paging.Position, _ string) (*message.Response, error) {
	op, ok := x.Operations.Find(i)
	switch {
	case !ok, len(at.Branches) != 1, op.Requirement == RequireToken, op.Name == operationExport:
		return nil, message.NotFound()
	case op.Requirement == RequirePatient:
		return x.handleJudged(ctx, c, i, op, at.Branches[0])
	}
	return x.handleConfined(ctx, c, i, op, at.Branches[0])
}

// mayCallWithToken reports whether the token may call an operation with [RequireToken]. Terminology operations require one of
// the scopes that the site has configured for them, if any.
func (x *Handler) mayCallWithToken(op Operation) bool {
	return !isTerminologyName(op.Name) || len(x.ExpandScopes) == 0 || x.Judge.Rights().HasAnyScope(x.ExpandScopes)
}

// isTerminologyName reports whether an operation involves only definitions. By default, any token may call such an operation.
func isTerminologyName(name string) bool {
	defaults := defaultOperations[name]
	return len(defaults) > 0 && defaults[0].Requirement == RequireToken
}

// IsTerminologyOperation reports whether an interaction is an operation that involves only definitions.
func IsTerminologyOperation(i interaction.Interaction) bool {
	return i.Kind == interaction.Operation && isTerminologyName(i.Operation)
}

// handleUnjudged answers an operation with [RequireToken] that is an entry of a batch.
func (x *Handler) handleUnjudged(ctx context.Context, c message.Call, op Operation) (*message.Response, error) {
	if !x.mayCallWithToken(op) {
		return nil, message.Forbidden(message.ErrInsufficientScope, "The token has none of the scopes that %s requires.", op.Name).WithScope(strings.Join(x.ExpandScopes, " "))
	}
	return x.Server.Do(ctx, newOperationCall(c))
}

// handleValidate answers $validate for a resource that the client may create or update. Validation can reveal whether a
// referenced resource exists, so references are judged as in a write.
func (x *Handler) handleValidate(ctx context.Context, c message.Call, i interaction.Interaction, op Operation) (*message.Response, error) {
	text, err := resourceToValidate(c, i)
	if err != nil {
		return nil, err
	}
	res, err := resource.Parse(text, x.Addresses.Base)
	if err != nil || i.Type != "" && res.Type != i.Type {
		return nil, message.InvalidRequest(errInvalidParameters, "The type of the resource in the body does not match the path.")
	}
	grants := append(x.Judge.Rights().GrantsFor(res.Type, smart.Create), x.Judge.Rights().GrantsFor(res.Type, smart.Update)...)
	if len(grants) == 0 {
		return nil, x.insufficientScope(op, interaction.Interaction{Type: res.Type})
	}
	if i.ID != "" {
		if err := x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants); err != nil {
			return nil, err
		}
	}
	if err := x.WriteHandler.CheckNew(ctx, res, text, grants); err != nil {
		return nil, err
	}
	a, err := x.Server.Do(ctx, newOperationCall(c))
	if err != nil {
		return nil, err
	}
	return x.validationResponse(a)
}

// resourceToValidate returns the resource in the body, which contains it directly or in a Parameters resource.
func resourceToValidate(c message.Call, i interaction.Interaction) ([]byte, error) {
	if err := message.CheckParameterNames("$validate", i.Parameters, []string{"mode", "profile", "_format", "_pretty"}); err != nil {
		return nil, err
	}
	body, err := resource.Parse(c.Body)
	if err != nil {
		return nil, message.InvalidRequest(err, "The body must be a resource in valid JSON without duplicate names.")
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
		switch parameterName := resource.Text(name); {
		case parameterName == "resource" && found == nil && isResource:
			found = text
		case parameterName != "mode" && parameterName != "profile" || isResource:
			return nil, message.Forbidden(message.ErrDisclosure, "$validate only accepts the parameters resource, mode and profile, each at most once.")
		}
	}
	if found == nil {
		return nil, message.InvalidRequest(errInvalidParameters, "The body contains no resource.")
	}
	return found, nil
}

// validationResponse returns the response to $validate, which is an OperationOutcome whether or not the resource is valid.
func (x *Handler) validationResponse(a *message.Response) (*message.Response, error) {
	if a.Status/100 == 5 || !a.IsSuccess() && a.Status != http.StatusBadRequest &&
		a.Status != http.StatusPreconditionFailed && a.Status != http.StatusUnprocessableEntity {
		return nil, Failure(a, nil)
	}
	if err := a.RequireJSON(); err != nil {
		return nil, err
	}
	res, err := x.Addresses.Parse(a.Body)
	if err != nil {
		return nil, err
	}
	if res.Type != "OperationOutcome" {
		return nil, message.NewWithheldError(errOperationResponse)
	}
	return message.NewResponse(a.Status, a.Body), nil
}

// ErrOperationNotAllowed means that an operation is not permitted, or not on this target or with these parameters.
var ErrOperationNotAllowed = errors.New("operation not allowed")

// isFullyCovered reports whether a single scope covers everything that an operation can return.
func (x *Handler) isFullyCovered(op Operation, i interaction.Interaction) bool {
	// A response that is judged resource by resource may contain resources of any type.
	if op.Requirement == RequirePatient {
		return x.Judge.Rights().IsUnrestricted(smart.AnyType, op.Permission)
	}
	return x.coversType(op, i.Type)
}

// coversType reports whether a single scope covers all resources of a type. Policies may still deny some of them.
func (x *Handler) coversType(op Operation, resourceType string) bool {
	return x.Judge.Rights().UnrestrictedTypes("", op.Permission).Has(resourceType)
}

// newOperationCall returns the client's call of an operation without headers that could change the response.
func newOperationCall(c message.Call) message.Call {
	call := message.NewGet(c.Path, c.Query)
	if c.Method == http.MethodPost {
		call.Method, call.Body = http.MethodPost, c.Body
	}
	if len(call.Body) > 0 {
		call.Header = http.Header{"Content-Type": {message.TypeJSON}}
	}
	return call
}

// checkInstance checks that a grant covers the resource on which an operation is called. The error for an uncovered resource is
// the same as for a missing one.
func (x *Handler) checkInstance(ctx context.Context, op Operation, i interaction.Interaction) error {
	grants := x.Judge.Rights().GrantsFor(i.Type, op.Permission)
	if len(grants) == 0 {
		return x.insufficientScope(op, i)
	}
	return x.checkCovered(ctx, interaction.Reference{Type: i.Type, ID: i.ID}, grants)
}

// checkCovered reads a resource and checks that one of the grants covers it.
func (x *Handler) checkCovered(ctx context.Context, of interaction.Reference, grants []access.Grant) error {
	a, err := x.Server.Do(ctx, message.NewGet(of.String(), ""))
	if err != nil {
		return err
	}
	_, err = x.Judge.ReadCovered(ctx, of, grants, a)
	return err
}

// systemTarget describes the target of an operation that is called on no type.
const systemTarget = "the system"

// insufficientScope returns the error for an operation that no scope allows.
func (x *Handler) insufficientScope(op Operation, i interaction.Interaction) error {
	rejection := message.Forbidden(message.ErrInsufficientScope, "No scope allows %s on %s: the permission %s is required.", op.Name, cmp.Or(i.Type, systemTarget), op.Permission)
	if missing := x.Judge.Rights().UnusableScopeReason; missing != "" {
		rejection = message.Forbidden(message.ErrInsufficientScope, "%s", missing)
	}
	return rejection.WithScope(x.Judge.Rights().MissingScopes(i.Type, op.Permission, false))
}

// unrestrictedScopeRequired returns the error for an operation that requires a scope for all resources.
func (x *Handler) unrestrictedScopeRequired(op Operation, i interaction.Interaction) error {
	return message.Forbidden(message.ErrInsufficientScope, "%s on %s requires a scope for all of its resources with the permission %s.", op.Name, cmp.Or(i.Type, systemTarget), op.Permission).
		WithScope(x.Judge.Rights().MissingScopes(i.Type, op.Permission, true))
}

// Failure returns the error for an operation that the FHIR server rejected, with reasons about the client's input.
func Failure(a *message.Response, sent message.SentTerms) error {
	switch {
	case a.Status/100 == 5, a.Status == http.StatusTooManyRequests:
		return message.ServerFailure(a)
	case a.Status == http.StatusNotFound, a.Status == http.StatusGone:
		return message.NotFound()
	}
	rejection := message.InvalidRequest(ErrOperationNotAllowed, "The FHIR server rejected the operation (%d).", a.Status)
	rejection.Description = message.ExplainRejection(rejection.Description, a, sent)
	return rejection
}

// responseGrants returns the grants for resources in an operation's response: those that include the operation's read and
// search permissions on the type.
func (x *Handler) responseGrants(op Operation, resourceType string) []access.Grant {
	return slices.Clip(x.Judge.Rights().GrantsFor(resourceType, cmp.Or(op.Permission&message.ReadSearch, smart.Read)))
}

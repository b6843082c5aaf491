package write

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// TypeJSONPatch is the media type of a JSON Patch (RFC 6902 §6).
const TypeJSONPatch = "application/json-patch+json"

// Patch answers a patch, conditional or not. The guard applies a JSON Patch itself and sends an update, so that the FHIR server
// cannot interpret the patch differently. A FHIRPath Patch is forwarded if it clearly does not affect access.
func (x *Handler) Patch(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	apply, err := w.patchFunc()
	if err != nil {
		return nil, err
	}
	if err := w.resolve(ctx); err != nil {
		return nil, err
	}
	before, err := w.readCurrent(ctx)
	if err != nil {
		return nil, err
	}
	return apply(ctx, before)
}

// patchFunc returns the function that applies a patch of the call's media type.
func (w *write) patchFunc() (func(context.Context, *version) (*message.Response, error), error) {
	switch media, _, _ := mime.ParseMediaType(w.call.Header.Get("Content-Type")); media {
	case TypeJSONPatch:
		p, err := parsePatch(w.call.Body)
		return func(ctx context.Context, before *version) (*message.Response, error) {
			return w.applyJSONPatch(ctx, before, p)
		}, err
	case message.TypeJSON, "application/json":
		return w.forwardPatch, w.checkFHIRPathPatch(w.call.Body)
	}
	return nil, &guard.Error{
		Status: http.StatusUnsupportedMediaType, Err: message.ErrInvalidBody,
		Description: "Send a patch as " + TypeJSONPatch + ", or as Parameters in " + message.TypeJSON + ".",
	}
}

// applyJSONPatch applies a JSON Patch and sends the result as an update.
func (w *write) applyJSONPatch(ctx context.Context, before *version, p jsonpatch.Patch) (*message.Response, error) {
	if err := w.checkTests(ctx, before, p); err != nil {
		return nil, err
	}
	text, err := applyPatch(before.text, p, w.handler.MaxBodyBytes)
	if err != nil {
		return nil, &guard.Error{Status: http.StatusUnprocessableEntity, Description: "The patch cannot be applied to the current version of the resource.", Err: err}
	}
	after, err := w.newVersion(text)
	if err != nil {
		return nil, err
	}
	if after.ID != before.ID {
		return nil, message.InvalidRequest(message.ErrInvalidBody, "A patch must not change the id.")
	}
	if _, err := w.permission.allowingGrant(ctx, before, after); err != nil {
		return nil, err
	}
	return w.send(ctx, w.putCall(text, before.etag))
}

// checkTests rejects a patch with test operations if the client may not read the resource, because a failed test reveals its
// content.
func (w *write) checkTests(ctx context.Context, before *version, p jsonpatch.Patch) error {
	hasTests := false
	for _, op := range p {
		hasTests = hasTests || op.Kind() == "test"
	}
	if !hasTests {
		return nil
	}
	ok, err := w.handler.Judge.IsCovered(ctx, before.Resource, w.handler.Judge.Rights().GrantsFor(w.interaction.Type, smart.Read))
	if err == nil && !ok {
		err = message.Forbidden(message.ErrDisclosure, "A patch with a test operation requires a scope to read this %s.", w.interaction.Type).
			WithScope(w.handler.Judge.Rights().MissingScopes(w.interaction.Type, smart.Read, false))
	}
	return err
}

var (
	// pointerPattern matches a JSON Pointer (RFC 6901) to an element of a resource.
	pointerPattern    = regexp.MustCompile(`^(/([A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]{0,8}|-))+$`)
	errMalformedPatch = errors.New("malformed JSON Patch")
)

// parsePatch parses and validates a JSON Patch.
func parsePatch(text []byte) (jsonpatch.Patch, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, message.InvalidRequest(err, "The patch must be valid JSON without duplicate names.")
	}
	p, err := jsonpatch.DecodePatch(text)
	if err != nil || len(p) == 0 {
		return nil, message.InvalidRequest(errMalformedPatch, "The body is not a JSON Patch.")
	}
	if len(p) > maxOperations {
		return nil, message.TooCostly("A patch may have at most %d operations.", maxOperations)
	}
	for _, op := range p {
		if !isOperation(op) {
			return nil, message.InvalidRequest(errMalformedPatch, "An operation of the patch is malformed, or its path does not point to an element of a resource.")
		}
	}
	return p, nil
}

// isOperation reports whether an operation has all required members (RFC 6902 §4).
func isOperation(op jsonpatch.Operation) bool {
	path, err := op.Path()
	if err != nil || !pointerPattern.MatchString(path) {
		return false
	}
	switch op.Kind() {
	case "add", "replace", "test":
		return op["value"] != nil
	case "move", "copy":
		from, err := op.From()
		return err == nil && pointerPattern.MatchString(from)
	case "remove":
		return true
	}
	return false
}

// applyPatch returns the patched resource. The limit in bytes applies to the copied data and to the result.
func applyPatch(text []byte, p jsonpatch.Patch, limit int64) ([]byte, error) {
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices, options.EscapeHTML, options.AccumulatedCopySizeLimit = false, false, limit
	patched, err := p.ApplyWithOptions(text, options)
	if err == nil && int64(len(patched)) > limit {
		err = message.ErrResponseTooLong
	}
	return patched, err
}

var (
	errFHIRPathPatch = errors.New("FHIRPath Patch cannot be checked")
	// plainPathPattern matches a path of element names and indices, which every FHIR server interprets in the same way.
	plainPathPattern = regexp.MustCompile(`^([A-Z][A-Za-z]+)((?:\.[a-z][A-Za-z0-9]*(?:\[[0-9]{1,9}\])?)*)$`)
	// plainNamePattern matches the name of an element.
	plainNamePattern = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)
)

// checkFHIRPathPatch rejects a FHIRPath Patch (R4 fhirpatch.html) that could change the owner of a resource or an element on
// which a scope depends, add a reference, or fail depending on elements that the client may not read. The patch is not
// evaluated here, so paths that are not plain are also rejected.
func (w *write) checkFHIRPathPatch(text []byte) error {
	if err := rawjson.Check(text); err != nil {
		return message.InvalidRequest(err, "The patch must be valid JSON without duplicate names.")
	}
	if MayHaveSideEffects(w.handler.Judge.Rights(), w.interaction.Type) { // judging side effects requires the full resource
		return message.Forbidden(message.ErrDisclosure, "With these scopes, send a JSON Patch to change a %s.", w.interaction.Type)
	}
	if w.isUnrestricted && w.handler.Judge.Rights().IsUnrestricted(w.interaction.Type, smart.Read) {
		return message.VisitStrings(text, func(_, value string) error { return checkNotConditional(w.handler.Judge.Rights(), value) })
	}
	var parameters map[string]any // a map, because struct fields match case-insensitively: "Part" would match "part"
	if err := json.Unmarshal(text, &parameters); err != nil || parameters["resourceType"] != "Parameters" {
		return message.InvalidRequest(errFHIRPathPatch, "The patch must be a Parameters resource.")
	}
	operations, _ := parameters["parameter"].([]any)
	notPlain := func(operation any) bool { return !w.permission.isPlain(operation, w.handler.SearchHandler.Parameters) }
	if len(operations) == 0 || len(operations) > maxOperations || slices.ContainsFunc(operations, notPlain) {
		return message.Forbidden(message.ErrDisclosure, "With these scopes, a FHIRPath Patch may only change elements at simple paths that are not references "+
			"and do not determine the resource's patient. Send a JSON Patch instead.")
	}
	return nil
}

// checkNotConditional returns an error if a text could become a conditional reference.
func checkNotConditional(rights *access.Rights, value string) error {
	path, _, _ := strings.Cut(value, "?")
	if !interaction.IsType(path[strings.LastIndexByte(path, '/')+1:]) {
		return nil
	}
	return checkConditionalReference(rights, value)
}

// isPlain reports whether an operation changes an element at a plain path on which access does not depend.
func (w writePermission) isPlain(operation any, parameters searchparam.Set) bool {
	parts, ok := operationParts(operation)
	path, isString := parts["path"].(string)
	match := plainPathPattern.FindStringSubmatch(path)
	if !ok || !isString || match == nil || match[1] != w.resourceType {
		return false
	}
	elements := match[2]
	if kind, _ := parts["type"].(string); kind == "add" {
		name, _ := parts["name"].(string)
		if !plainNamePattern.MatchString(name) {
			return false
		}
		elements += "." + name
	} else if !slices.Contains([]string{"insert", "delete", "replace", "move"}, kind) {
		return false
	}
	if elements == "" {
		return false
	}
	names := strings.Split(elements[1:], ".")
	first, _, _ := strings.Cut(names[0], "[")
	return !slices.Contains(names, "reference") &&
		!slices.ContainsFunc(w.protectedElements(parameters), func(name string) bool { return mayBeSameElement(first, name) })
}

// operationParts returns an operation's parts by name. ok is false if a part is nested or repeated or contains a reference.
func operationParts(operation any) (map[string]any, bool) {
	o, _ := operation.(map[string]any)
	list, isList := o["part"].([]any)
	if o["name"] != "operation" || len(o) != 2 || !isList {
		return nil, false
	}
	parts := map[string]any{}
	for _, p := range list {
		part, _ := p.(map[string]any)
		name, isNamed := part["name"].(string)
		if _, isRepeated := parts[name]; isRepeated || !isNamed || len(part) != 2 {
			return nil, false
		}
		for member, value := range part {
			if strings.HasPrefix(member, "value") && !hasReference(value) {
				parts[name] = value
			}
		}
		if parts[name] == nil {
			return nil, false
		}
	}
	return parts, true
}

// hasReference reports whether a value is or contains a reference or a resource.
func hasReference(value any) bool {
	switch v := value.(type) {
	case []any:
		return slices.ContainsFunc(v, hasReference)
	case map[string]any:
		for name, member := range v {
			if name == "reference" || name == "resourceType" || hasReference(member) {
				return true
			}
		}
	}
	return false
}

// mayBeSameElement reports whether two names may identify the same element: FHIRPath uses "value" for valueQuantity.
func mayBeSameElement(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	rest, ok := strings.CutPrefix(b, a)
	return ok && (rest == "" || 'A' <= rest[0] && rest[0] <= 'Z')
}

// protectedElements returns the elements on which the judgment of the resource depends.
func (w writePermission) protectedElements(parameters searchparam.Set) []string {
	all := []string{"id", "meta", "implicitRules", "contained", "patient", "securityContext"}
	names, _ := compartment.PatientParameters(w.resourceType)
	names = append(slices.Clip(names), "patient")
	for _, g := range w.grants {
		for _, p := range g.Constraint {
			names = append(slices.Clip(names), p.Name)
		}
	}
	for _, name := range names {
		parameter, _ := parameters.Lookup(w.resourceType, name)
		for _, path := range parameter.Paths {
			all = append(all, path.Elements[0])
		}
	}
	return all
}

// forwardPatch forwards the client's patch, restricted to the judged version.
func (w *write) forwardPatch(ctx context.Context, before *version) (*message.Response, error) {
	if _, err := w.permission.allowingGrant(ctx, before, nil); err != nil {
		return nil, err
	}
	c := message.Call{Method: http.MethodPatch, Path: w.interaction.Type + "/" + w.interaction.ID, Header: w.requestHeaders(), Body: w.call.Body}
	c.Header.Set("If-Match", before.etag)
	return w.send(ctx, c)
}

// maxOperations is the maximum number of operations in a patch.
const maxOperations = 1000

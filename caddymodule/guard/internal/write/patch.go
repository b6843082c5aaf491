package write

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"regexp"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// TypeJSONPatch is the media type of a JSON Patch (RFC 6902 §6).
const TypeJSONPatch = "application/json-patch+json"

// Patch answers a patch, conditional or not. A JSON Patch is applied here, and goes on as the update that it comes to,
// so that there is one reading of it. A FHIRPath Patch goes on as it is, if it is plain what it changes.
func (x *Writes) Patch(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	apply, err := w.patching()
	if err != nil {
		return nil, err
	}
	if err := w.resolve(ctx); err != nil {
		return nil, err
	}
	before, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	return apply(ctx, before)
}

// patching is how a patch of its media type is applied.
func (w *write) patching() (func(context.Context, *version) (*message.Answer, error), error) {
	switch media, _, _ := mime.ParseMediaType(w.c.Header.Get("Content-Type")); media {
	case TypeJSONPatch:
		p, err := readPatch(w.c.Body)
		return func(ctx context.Context, before *version) (*message.Answer, error) { return w.patchTo(ctx, before, p) }, err
	case message.TypeJSON, "application/json":
		return w.forwardPatch, w.checkFHIRPathPatch(w.c.Body)
	}
	return nil, &guard.Error{
		Status: http.StatusUnsupportedMediaType, Err: message.ErrBody,
		Description: "Send a patch as " + TypeJSONPatch + ", or as Parameters in " + message.TypeJSON + ".",
	}
}

// patchTo makes a JSON Patch the update that it comes to.
func (w *write) patchTo(ctx context.Context, before *version, p jsonpatch.Patch) (*message.Answer, error) {
	if err := w.checkTests(ctx, before, p); err != nil {
		return nil, err
	}
	text, err := applyPatch(before.text, p, w.in.Limit)
	if err != nil {
		return nil, &guard.Error{Status: http.StatusUnprocessableEntity, Description: "The patch cannot be applied to the current version.", Err: err}
	}
	after, err := w.newVersion(text)
	if err != nil {
		return nil, err
	}
	if after.ID != before.ID {
		return nil, message.Invalid(message.ErrBody, "A patch does not change the id.")
	}
	if err := w.may.permit(ctx, before, after); err != nil {
		return nil, err
	}
	return w.send(ctx, w.put(text, before.etag))
}

// checkTests refuses to test what the client may not read: a patch that fails would tell.
func (w *write) checkTests(ctx context.Context, before *version, p jsonpatch.Patch) error {
	tests := false
	for _, op := range p {
		tests = tests || op.Kind() == "test"
	}
	if !tests {
		return nil
	}
	ok, err := w.in.Judge.Covered(ctx, before.Resource, w.in.Judge.Rights().For(w.i.Type, smart.Read))
	if err == nil && !ok {
		err = message.Forbidden(message.ErrOracle, "No scope allows to read this %s, and so none to test it in a patch.", w.i.Type).
			Lifted(w.in.Judge.Rights().Lacking(w.i.Type, smart.Read, false))
	}
	return err
}

var (
	// pointer is a JSON Pointer (RFC 6901) to an element of a resource.
	pointer  = regexp.MustCompile(`^(/([A-Za-z_][A-Za-z0-9_]*|0|[1-9][0-9]{0,8}|-))+$`)
	errPatch = errors.New("malformed JSON Patch")
)

// readPatch reads a JSON Patch.
func readPatch(text []byte) (jsonpatch.Patch, error) {
	if err := rawjson.Check(text); err != nil {
		return nil, message.Invalid(err, "The patch is no JSON that has one reading.")
	}
	p, err := jsonpatch.DecodePatch(text)
	if err != nil || len(p) == 0 {
		return nil, message.Invalid(errPatch, "The patch is no JSON Patch.")
	}
	if len(p) > maxOperations {
		return nil, message.TooCostly("A patch may have %d operations at most.", maxOperations)
	}
	for _, op := range p {
		if !isOperation(op) {
			return nil, message.Invalid(errPatch, "An operation of the patch is malformed, or its pointer leads to no element of a resource.")
		}
	}
	return p, nil
}

// isOperation reports whether an operation has what it needs (RFC 6902 §4).
func isOperation(op jsonpatch.Operation) bool {
	path, err := op.Path()
	if err != nil || !pointer.MatchString(path) {
		return false
	}
	switch op.Kind() {
	case "add", "replace", "test":
		return op["value"] != nil
	case "move", "copy":
		from, err := op.From()
		return err == nil && pointer.MatchString(from)
	case "remove":
		return true
	}
	return false
}

// applyPatch is the resource that a patch makes of another. Limit bounds what it copies and comes to.
func applyPatch(text []byte, p jsonpatch.Patch, limit int64) ([]byte, error) {
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices, options.EscapeHTML, options.AccumulatedCopySizeLimit = false, false, limit
	patched, err := p.ApplyWithOptions(text, options)
	if err == nil && int64(len(patched)) > limit {
		err = message.ErrTooLong
	}
	return patched, err
}

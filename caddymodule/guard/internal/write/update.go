package write

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Create answers a create, conditional or not. The id in the body means nothing (R4 http.html#create).
func (x *Writes) Create(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.c.Body)
	if err != nil {
		return nil, err
	}
	if w.isForwarded() {
		return w.forward(ctx)
	}
	body, err := rawjson.Without(after.text, "id")
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(body); err != nil {
		return nil, err
	}
	if err := w.may.permit(ctx, nil, after); err != nil {
		return nil, err
	}
	if w.isConditional() {
		id, err := w.criteria.One(ctx)
		if err != nil || id != "" {
			return x.found(ctx, i.Type, id, err)
		}
	}
	return w.send(ctx, w.post(body))
}

// found is what a conditional create is answered with if the resource is there already (R4 http.html#ccreate).
func (x *Writes) found(ctx context.Context, resourceType, id string, err error) (*message.Answer, error) {
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: resourceType, ID: id}
	a, err := x.Reads.Read(ctx, message.Get(of.String(), ""), interaction.Interaction{Kind: interaction.Read, Type: of.Type, ID: of.ID})
	if err != nil {
		a = message.NewAnswer(http.StatusOK, nil)
	}
	a.Header.Set("Location", x.At.URL(of.String(), ""))
	return a, nil
}

// Update answers an update, conditional or not. Under scopes that are not about all of the type, one grant must cover
// the resource as it is, and as it will be.
func (x *Writes) Update(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.c.Body)
	switch {
	case err != nil:
		return nil, err
	case !w.isConditional() && after.ID != i.ID:
		return nil, message.Invalid(message.ErrBody, "The id of the resource is not the one in the path.")
	case w.isForwarded():
		return w.forward(ctx)
	case w.isConditional():
		return w.updateMatch(ctx, after)
	}
	return w.updateTo(ctx, after)
}

// updateTo writes a version of the resource that the write names. What is refused whatever the stored version is, is
// refused before that is asked for.
func (w *write) updateTo(ctx context.Context, after *version) (*message.Answer, error) {
	if err := w.may.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	before, err := w.current(ctx)
	if w.in.mayUpsert(w.i.Type, err) {
		return w.upsert(ctx, after)
	}
	if err != nil {
		return nil, err
	}
	if err := w.may.permit(ctx, before, after); err != nil {
		return nil, err
	}
	return w.send(ctx, w.put(after.text, before.etag))
}

// mayUpsert reports whether what could not be had may be created, because it is not there.
func (x *Writes) mayUpsert(resourceType string, err error) bool {
	return errors.Is(err, errAbsent) && x.Upsert && resourceType != "Patient"
}

// upsert creates a resource under the client's id. A server that knows If-None-Match creates it only if it is not there
// still.
func (w *write) upsert(ctx context.Context, after *version) (*message.Answer, error) {
	if w.c.Header.Get("If-Match") != "" {
		return nil, message.NotFound()
	}
	if err := w.may.permit(ctx, nil, after); err != nil {
		return nil, err
	}
	c := w.put(after.text, "")
	c.Header.Set("If-None-Match", "*")
	return w.send(ctx, c)
}

// updateMatch updates the resource that matches the criteria, or creates one (R4 http.html#cond-update).
func (w *write) updateMatch(ctx context.Context, after *version) (*message.Answer, error) {
	id, err := w.criteria.One(ctx)
	switch {
	case err != nil:
		return nil, err
	case id == "" && after.ID == "": // SMART counts that as an update
		if err := w.may.permit(ctx, nil, after); err != nil {
			return nil, err
		}
		return w.send(ctx, w.post(after.text))
	case id == "":
		return w.upsertUnmatched(ctx, after)
	case after.ID != "" && after.ID != id:
		return nil, message.Invalid(message.ErrBody, "The id of the resource is not that of the one that matches the criteria.")
	}
	w.i.ID = id
	text, err := rawjson.With(after.text, "id", []byte(strconv.Quote(id)))
	if err != nil {
		return nil, err
	}
	if after, err = w.newVersion(text); err != nil {
		return nil, err
	}
	return w.updateTo(ctx, after)
}

// upsertUnmatched creates one with the client's id, which must not be that of a resource that the criteria passed over.
func (w *write) upsertUnmatched(ctx context.Context, after *version) (*message.Answer, error) {
	w.i.ID = after.ID
	if err := w.may.checkCovered(ctx, after); err != nil {
		return nil, err
	}
	_, err := w.current(ctx)
	switch {
	case w.in.mayUpsert(w.i.Type, err):
		return w.upsert(ctx, after)
	case err != nil:
		return nil, err
	}
	return nil, &guard.Error{Status: http.StatusConflict, Description: "The resource with that id does not match the criteria.", Err: errConflict}
}

// Delete answers a delete, conditional or not. Under scopes that are not about all of the type, what is not there, was
// deleted or is not covered is not found: that it has been deleted, as R4 would have it, could be wrong, and for a
// record that is to vanish a wrong yes is worse than a no.
//
// Some servers, HAPI among them, ignore If-Match on a delete. So where the server has conditional deletes, it deletes the
// resource only as long as the grant that allows it covers it.
func (x *Writes) Delete(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	w, err := x.newWrite(ctx, c, i)
	switch {
	case err != nil:
		return nil, err
	case w.isForwarded():
		return w.forward(ctx)
	}
	if err := w.resolve(ctx); err != nil {
		return nil, err
	}
	before, err := w.current(ctx)
	if err != nil {
		return nil, err
	}
	g, err := w.may.permitting(ctx, before, nil)
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: w.i.Type, ID: w.i.ID}
	del, confined := w.confinedDelete(ctx, g, before)
	if confined {
		w.confined = of
	} else {
		del = message.Call{Method: http.MethodDelete, Path: of.String()}
	}
	del.Header = http.Header{"If-Match": {before.etag}}
	a, err := w.send(ctx, del)
	if err != nil || !a.Succeeded() {
		return a, err
	}
	return message.NewAnswer(http.StatusNoContent, nil), nil
}

package enforce

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// create answers a create, conditional or not. The id in the body means nothing (R4 http.html#create).
func (x *writes) create(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	w, err := x.newWrite(ctx, c, i)
	if err != nil {
		return nil, err
	}
	if err := w.resolveReferences(ctx); err != nil {
		return nil, err
	}
	after, err := w.newVersion(w.c.body)
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
		id, err := w.criteria.one(ctx)
		if err != nil || id != "" {
			return w.found(ctx, id, err)
		}
	}
	return w.send(ctx, w.post(body))
}

// found is what a conditional create is answered with if the resource is there already (R4 http.html#ccreate).
func (w *write) found(ctx context.Context, id string, err error) (*answer, error) {
	if err != nil {
		return nil, err
	}
	of := interaction.Reference{Type: w.i.Type, ID: id}
	a, err := w.in.reads.Read(ctx, get(of.String(), ""), interaction.Interaction{Kind: interaction.Read, Type: of.Type, ID: of.ID})
	if err != nil {
		a = newAnswer(http.StatusOK, nil)
	}
	a.header.Set("Location", w.in.at.url(of.String(), ""))
	return a, nil
}

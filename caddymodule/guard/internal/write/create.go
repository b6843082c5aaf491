package write

import (
	"context"
	"net/http"

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

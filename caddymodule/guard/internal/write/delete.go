package write

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Delete answers a delete, conditional or not. Under scopes that are not about all of the type, what is not there, was
// deleted or is not covered is not found: that it has been deleted, as R4 would have it, could be wrong, and for a
// record that is to vanish a wrong yes is worse than a no.
//
// HAPI's server deletes whatever If-Match says. A resource that somebody moves to another patient after it was judged,
// and before it is deleted, is deleted there.
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
	if err := w.may.permit(ctx, before, nil); err != nil {
		return nil, err
	}
	header := http.Header{"If-Match": {before.etag}}
	a, err := w.send(ctx, message.Call{Method: http.MethodDelete, Path: w.i.Type + "/" + w.i.ID, Header: header})
	if err != nil || !a.Succeeded() {
		return a, err
	}
	return message.NewAnswer(http.StatusNoContent, nil), nil
}

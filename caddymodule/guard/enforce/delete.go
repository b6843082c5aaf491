package enforce

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// delete answers a delete, conditional or not. Under scopes that are not about all of the type, what is not there, was
// deleted or is not covered is not found: that it has been deleted, as R4 would have it, could be wrong, and for a
// record that is to vanish a wrong yes is worse than a no.
//
// HAPI's server deletes whatever If-Match says. A resource that somebody moves to another patient after it was judged,
// and before it is deleted, is deleted there.
func (x *writes) delete(ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
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
	a, err := w.send(ctx, call{method: http.MethodDelete, path: w.i.Type + "/" + w.i.ID, header: header})
	if err != nil || !a.succeeded() {
		return a, err
	}
	return newAnswer(http.StatusNoContent, nil), nil
}

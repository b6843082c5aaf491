package write

import (
	"context"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// isConditional reports whether the resource is the one that matches criteria.
func (w *write) isConditional() bool { return w.i.Permission()&smart.Search != 0 }

// planned plans the search that the criteria of a conditional write are.
func (x *Writes) planned(ctx context.Context, i interaction.Interaction) (*search.Selection, error) {
	s, err := x.Searches.Selecting(ctx, i.Type, slices.DeleteFunc(i.Criteria(), isCascade))
	if err == nil && !s.Selects {
		err = message.Invalid(message.ErrSearch, "Criteria of a conditional request select resources, and nothing else.")
	}
	return s, err
}

// isForwarded reports whether the FHIR server does by itself what the client asks for: the scopes are about all that it
// may find and change.
func (w *write) isForwarded() bool {
	return w.whole && (!w.isConditional() || !w.criteria.Nothing && w.in.Judge.Rights().Whole(w.i.Type, smart.Search))
}

// forwardedCriteria are the query and the header that bring the FHIR server the criteria, as the rules for searches have
// left them.
func (w *write) forwardedCriteria() (query string, ifNoneExist []string) {
	switch {
	case !w.isConditional():
		return w.c.Query, nil
	case w.i.Kind == interaction.ConditionalCreate:
		return w.c.Query, []string{smart.EncodeParameters(w.criteria.Parameters)}
	}
	cascade := slices.DeleteFunc(slices.Clone(w.i.Parameters), func(p smart.Parameter) bool { return !isCascade(p) })
	return smart.EncodeParameters(slices.Concat(w.criteria.Parameters, cascade)), nil
}

// resolve makes a write of what matches the criteria one by id.
func (w *write) resolve(ctx context.Context) error {
	if !w.isConditional() {
		return nil
	}
	id, err := w.criteria.One(ctx)
	if err == nil && id == "" {
		err = message.NotFound()
	}
	w.i.ID = id
	return err
}

package enforce

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

var errSeveral = errors.New("several resources match the criteria")

// isConditional reports whether the resource is the one that matches criteria.
func (w conditionals) isConditional() bool { return w.i.Permission()&smart.Search != 0 }

// plan plans the search that the criteria of a conditional write are.
func (w conditionals) plan(ctx context.Context) error {
	criteria := slices.DeleteFunc(w.i.Criteria(), isCascade)
	i := interaction.Interaction{Kind: interaction.TypeSearch, Type: w.i.Type, Parameters: criteria}
	s, err := w.searches().newSearch(ctx, get(w.i.Type, ""), i)
	if err == nil && (s.includes.any() || s.onlyTotal || s.count > 0) {
		err = invalid(errSearch, "Criteria of a conditional request select resources, and nothing else.")
	}
	w.criteria = s
	return err
}

// isForwarded reports whether the FHIR server does by itself what the client asks for: the scopes are about all that it
// may find and change.
func (w conditionals) isForwarded() bool {
	return w.whole && (!w.isConditional() || !w.criteria.nothing && w.rights.Whole(w.i.Type, smart.Search))
}

// forwardedCriteria are the query and the header that bring the FHIR server the criteria, as the rules for searches have
// left them.
func (w conditionals) forwardedCriteria() (query string, ifNoneExist []string) {
	switch {
	case !w.isConditional():
		return w.c.query, nil
	case w.i.Kind == interaction.ConditionalCreate:
		return w.c.query, []string{smart.EncodeParameters(w.criteria.parameters)}
	}
	cascade := slices.DeleteFunc(slices.Clone(w.i.Parameters), func(p smart.Parameter) bool { return !isCascade(p) })
	return smart.EncodeParameters(slices.Concat(w.criteria.parameters, cascade)), nil
}

// match is the id of the resource that matches the criteria, among those that the client may find; empty if there is
// none. Several are refused.
func (w conditionals) match(ctx context.Context) (string, error) { return w.criteria.single(ctx) }

// single is the id of the one resource that a search finds.
func (s *search) single(ctx context.Context) (string, error) {
	s.judged, s.count = true, 2
	var found []entry
	err := s.each(ctx, s.x.limits.Requests, func(e entry) error {
		if found = append(found, e); len(found) > 1 {
			return errSeveral
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSeveral) {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return found[0].parsed.ID, nil
	}
	return "", &guard.Error{Status: http.StatusPreconditionFailed, Description: "Several resources match the criteria.", Err: errSeveral}
}

// resolve makes a write of what matches the criteria one by id.
func (w conditionals) resolve(ctx context.Context) error {
	if !w.isConditional() {
		return nil
	}
	id, err := w.match(ctx)
	if err == nil && id == "" {
		err = notFound()
	}
	w.i.ID = id
	return err
}

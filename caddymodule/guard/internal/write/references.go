package write

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// checkConditional refuses references that are searches (R4 http.html#trules), outside of transactions too, where some
// servers resolve them: only who may search all resources of a type learns no more by them.
func checkConditional(rights *access.Rights, text []byte) error {
	all, err := message.References(text)
	if err != nil {
		return message.Invalid(err, "The body is no resource in JSON that has one reading.")
	}
	for _, literal := range all {
		if err := checkSearching(rights, literal); err != nil {
			return err
		}
	}
	return nil
}

// maxSearching is how many references of a body may be searches.
const maxSearching = 16

// resolveReferences puts the resources in the place of the references that are searches, as the client's own searches find
// them. Those that no scope allows stay, to be refused; where the FHIR server may search for itself, all do.
func (w *write) resolveReferences(ctx context.Context) error {
	if w.isForwarded() {
		return nil
	}
	all, _ := message.References(w.c.Body) // what cannot be read is refused with the body
	slices.Sort(all)
	searching := slices.DeleteFunc(slices.Compact(all), func(literal string) bool {
		of, _, searches := strings.Cut(literal, "?")
		return !searches || !interaction.IsType(of) || !w.in.Judge.Rights().Allow(of, smart.Search)
	})
	if len(searching) > maxSearching {
		return message.TooCostly("At most %d references of a resource may be searches under these scopes.", maxSearching)
	}
	for _, literal := range searching {
		found, err := w.in.searched(ctx, literal)
		if err != nil {
			return err
		}
		w.c.Body = bytes.ReplaceAll(w.c.Body, []byte(message.Quoted(literal)), []byte(message.Quoted(found)))
	}
	return nil
}

// searched is the one resource that a conditional reference means (R4 http.html#trules).
func (x *Writes) searched(ctx context.Context, literal string) (string, error) {
	of, criteria, _ := strings.Cut(literal, "?")
	parameters, err := smart.ParseParameters(criteria)
	if err != nil {
		return "", message.Invalid(err, "A conditional reference can be read in several ways.")
	}
	found, err := x.Searches.Selecting(ctx, of, parameters)
	if err != nil {
		return "", err
	}
	id, err := found.One(ctx)
	if err == nil && id == "" {
		err = &guard.Error{
			Status: http.StatusPreconditionFailed, Err: message.ErrOutside,
			Description: "A conditional reference to " + of + " matches nothing that the access token covers.",
		}
	}
	return of + "/" + id, err
}

// checkSearching refuses one reference that is a search.
func checkSearching(rights *access.Rights, literal string) error {
	path, criteria, searches := strings.Cut(literal, "?")
	if !searches || rights.All()&smart.Search != 0 {
		return nil
	}
	of := path[strings.LastIndexByte(path, '/')+1:]
	if !interaction.IsType(of) {
		return message.Forbidden(message.ErrOracle, "A reference with a question mark is a search: no scope allows it on all types.")
	}
	if list, err := smart.ParseParameters(criteria); err != nil || !rights.Whole(of, smart.Search) || reachesOther(list) {
		return message.Forbidden(message.ErrOracle, "A conditional reference to %s is a search: no scope allows it on all resources that it may tell of.", of)
	}
	return nil
}

// reachesOther reports whether a search looks at other resources than those that it finds.
func reachesOther(list []smart.Parameter) bool {
	for _, p := range list {
		switch name, _, _ := strings.Cut(p.Name, ":"); {
		case name == "_has", name == "_filter", name == "_list", name == "_query", strings.Contains(p.Name, "."):
			return true
		}
	}
	return false
}

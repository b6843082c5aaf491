package enforce

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// eachString calls visit with each string of a JSON text and the name of the member that it is, or is in an array of.
func eachString(text []byte, visit func(name, said string) error) error {
	return visitStrings(rawjson.NewCursor(text).AllowDuplicates(), "", visit)
}

func visitStrings(c *rawjson.Cursor, name string, visit func(name, said string) error) error {
	switch c.Kind() {
	case rawjson.Object:
		return c.Object(func(member []byte) error { return visitStrings(c, string(member), visit) })
	case rawjson.Array:
		return c.Array(func() error { return visitStrings(c, name, visit) })
	case rawjson.String:
		said, err := c.Text()
		if err != nil {
			return err
		}
		return visit(name, said)
	}
	return c.Skip()
}

// references are the literal references in a resource, at any depth.
func references(text []byte) ([]string, error) {
	var all []string
	err := eachString(text, func(name, said string) error {
		if name == "reference" {
			all = append(all, said)
		}
		return nil
	})
	return all, err
}

// checkConditional refuses references that are searches (R4 http.html#trules), outside of transactions too, where some
// servers resolve them: only who may search all resources of a type learns no more by them.
func checkConditional(rights *access.Rights, text []byte) error {
	all, err := references(text)
	if err != nil {
		return invalid(err, "The body is no resource in JSON that has one reading.")
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
	all, _ := references(w.c.body) // what cannot be read is refused with the body
	slices.Sort(all)
	searching := slices.DeleteFunc(slices.Compact(all), func(literal string) bool {
		of, _, searches := strings.Cut(literal, "?")
		return !searches || !interaction.IsType(of) || !w.in.judge.Rights().Allow(of, smart.Search)
	})
	if len(searching) > maxSearching {
		return tooCostly("At most %d references of a resource may be searches under these scopes.", maxSearching)
	}
	for _, literal := range searching {
		found, err := w.searched(ctx, literal)
		if err != nil {
			return err
		}
		w.c.body = bytes.ReplaceAll(w.c.body, []byte(quoted(literal)), []byte(quoted(found)))
	}
	return nil
}

// searched is the one resource that a conditional reference means (R4 http.html#trules).
func (w *write) searched(ctx context.Context, literal string) (string, error) {
	of, criteria, _ := strings.Cut(literal, "?")
	parameters, err := smart.ParseParameters(criteria)
	if err != nil {
		return "", invalid(err, "A conditional reference can be read in several ways.")
	}
	found, err := w.in.searches.selecting(ctx, of, parameters)
	if err != nil {
		return "", err
	}
	id, err := found.one(ctx)
	if err == nil && id == "" {
		err = &guard.Error{
			Status: http.StatusPreconditionFailed, Err: ErrOutside,
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
		return forbidden(ErrOracle, "A reference with a question mark is a search: no scope allows it on all types.")
	}
	if list, err := smart.ParseParameters(criteria); err != nil || !rights.Whole(of, smart.Search) || reachesOther(list) {
		return forbidden(ErrOracle, "A conditional reference to %s is a search: no scope allows it on all resources that it may tell of.", of)
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

package write

import (
	"context"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/read"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// permission says what the grants for a write allow to be written.
type permission struct {
	judge        *judge.Judge
	shared       access.Shared
	resourceType string
	grants       []access.Grant
}

// Result is what the client is told of a write.
type Result struct {
	Judge *judge.Judge // judges the response
	at    message.Addresses
	C     message.Call // the client's
	i     interaction.Interaction
	// Confined is the resource that is deleted as long as it matches criteria. Zero for all other writes.
	Confined interaction.Reference
	server   *fhirserver.Server
}

// Collector takes what a write comes to in place of the server, with what the client is to be told of it.
type Collector func(r Result, c message.Call) (*message.Answer, error)

// Writes are the writes that one request needs.
type Writes struct {
	Server   *fhirserver.Server // asks the FHIR server
	Judge    *judge.Judge       // judges what it answers
	At       message.Addresses  // names what it holds as clients know it
	Searches *search.Searches   // of criteria
	Reads    *read.Reads        // reads the stored version
	Shared   access.Shared      // are the rules of types outside of the compartment
	Upsert   bool               // an update may create a resource

	ConditionalDeletes *ConditionalDeletes // of the FHIR server

	Limit   int64     // of a body
	Collect Collector // nil: writes are sent
}

// write is a create, update, patch or delete on its way.
type write struct {
	in       *Writes
	c        message.Call
	i        interaction.Interaction
	may      permission
	whole    bool                  // a grant is about all resources of the type
	criteria *search.Selection     // of a conditional one
	confined interaction.Reference // see [Result.Confined]
}

// isCascade reports whether a parameter has HAPI's server delete what refers to a resource, too.
func isCascade(p smart.Parameter) bool {
	name, _, _ := strings.Cut(p.Name, ":")
	return name == "_cascade"
}

// version is a resource as it is or will be.
type version struct {
	resource.Resource
	text []byte
	etag string // of the version on the server, by which it is held
}

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

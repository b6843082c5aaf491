package search

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// asker asks the FHIR server.
type asker interface {
	Ask(ctx context.Context, c message.Call) (*message.Answer, error)
	Hold(ctx context.Context, c message.Call) (*message.Held, error)
}

// judge says what the token may see.
type judge interface {
	Rights() *access.Rights
	MayDeny() bool
	Covered(ctx context.Context, res resource.Resource, grants []access.Grant) (bool, error)
	Remember(res resource.Resource, grants []access.Grant)
}

// Searches are the searches that one request needs.
type Searches struct {
	Server         asker             // asks the FHIR server
	Judge          judge             // judges what it answers
	At             message.Addresses // names what it holds as clients know it
	Pages          paging.Pages      // seals links to pages
	Parameters     searchparam.Set   // are the search parameters
	Shared         access.Shared     // are the rules of types outside of the compartment
	InCompartments bool              // the server finds a patient's resources by Patient/id/Type
	Requests       int               // to the server that the request may cause
}

package enforce

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Enforcer lets a token's requests reach a FHIR server as far as its scopes allow. It is safe for concurrent use, and
// must not be changed once in use.
type Enforcer struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string
	// BaseURL is the URL that clients know the API by. It stands before relative links. Empty: links are relative.
	BaseURL string
	// Shared are the rules for types outside of compartments.
	Shared Shared
	// Sealing seals links to pages and jobs. Required.
	Sealing Sealing
	// Parameters are the search parameters that are known: a site's own beside those of R4. Zero: those of R4.
	Parameters searchparam.Set
	// CompartmentSearch says that the server finds a patient's resources by Patient/id/Type (FHIR R4 §3.1.1.4). Default:
	// they are found by one search for each membership parameter, whose results are joined.
	CompartmentSearch bool
	// Operations are those that may be called. Nil: those of [NewOperations].
	Operations operation.Operations
	// ExpandScopes are scopes of which a token must have one for operations on terminology. Empty: any token may call
	// them.
	ExpandScopes []string
	// Policies are the site's own rules.
	Policies Policies
	// Upsert lets an update create what is not there, under scopes that are not about all of the type too. A client that
	// may do so learns which ids are taken. Default: the answer is 404, as for what is there and not covered.
	Upsert bool
	// Metadata answers GET metadata in batches. Nil: with the server's statement, of which only the address is changed.
	Metadata *capability.Metadata
	// Limits bound what one request may cost.
	Limits Limits
	// Memory bounds what all requests hold together that is judged: bodies and answers. Nil: nothing does.
	Memory *fairmemory.Memory
	// DecisionHeader is a request header that tells the next handler what was decided and why. Empty: none.
	DecisionHeader string
	// Decided is called with each decision, after the answer. Nil if nobody wants to know.
	Decided func(r *http.Request, b Bearer, d Decision)
}

// Bearer is who asks.
type Bearer struct {
	// Rights are what the token may do. Required.
	Rights *Rights
	// Binding names all that a page link is bound to: subject, client, patient and scopes.
	Binding string
	// Token is the token, for rules and decisions. May be nil.
	Token *guard.Token
}

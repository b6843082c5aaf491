package enforce

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relationship"
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
	// PageStates stores the states of pages that are too long for a link. Nil: links have any length.
	PageStates PageStates
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
	// Policies judge requests and resources besides scopes.
	Policies []rule.Policy
	// Upsert lets an update create what is not there, under scopes that are not about all of the type too. A client that
	// may do so learns which ids are taken. Default: the answer is 404, as for what is there and not covered.
	Upsert bool
	// Metadata answers GET metadata in batches. Nil: with the server's statement, of which only the address is changed.
	Metadata *capability.Metadata
	// Limits bound what one request may cost.
	Limits Limits
	// Memory bounds what all requests hold together that is judged: bodies and answers. Each client and each person has a
	// part of it. Nil: nothing bounds it.
	Memory *fairmemory.Memory
	// Judging is called before a call is judged, and gives the context for it; what it returns is called after that. Nil if
	// nobody wants to know.
	Judging func(ctx context.Context, i interaction.Interaction) (context.Context, func(error))
	// Logger gets what administrators must know of responses: headers that were removed, and responses that were aborted.
	// Nil: nobody.
	Logger *slog.Logger
	// Decided is called with each decision, after the answer. Nil if nobody wants to know.
	Decided func(r *http.Request, b Bearer, d Decision)

	conditionalDeletes write.ConditionalDeletes
	bases              address.Bases // of the FHIR server, as its responses show them
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

type (
	// Sealing seals links so that nobody but us can make or read them.
	Sealing = paging.Sealing

	// PageStates stores the states of pages that are too long for a link.
	PageStates = paging.PageStates

	// Operation is an operation that may be called.
	Operation = operation.Operation

	// Limits bound what one request may cost. The zero value means the defaults.
	Limits = fhirserver.Limits
)

// ErrNoPageState says that the state of a page has expired or was discarded.
var ErrNoPageState = paging.ErrNoState

// NewOperations returns the default operations with a site's own: what it says of a name takes the place of the default.
func NewOperations(own ...Operation) operation.Operations { return operation.NewOperations(own...) }

// ParseOperation reads the words that say how an operation is judged: its name, what it does, and for which types.
func ParseOperation(words ...string) (Operation, error) { return operation.ParseOperation(words...) }

// AnswerOf is how long an answer may be that is judged in memory of a size.
func AnswerOf(memory int64) int64 { return fhirserver.AnswerOf(memory) }

// NewMemory returns memory of a size in bytes, for answers up to the limit. Size 0: 256 MiB, or as much as the limit takes.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	return fhirserver.NewMemory(size, l)
}

type (
	// Holder is who holds a token.
	Holder = access.Holder

	// Rights are what a token may do.
	Rights = access.Rights

	// Shared are the rules for types outside of compartments.
	Shared = access.Shared
)

// NewRights returns the rights of a token's holder. Scopes that are malformed, that lack their context or whose
// constraint cannot be checked grant nothing.
func NewRights(h Holder, shared Shared) *Rights { return access.New(h, shared) }

// Terminology are the grants of any valid token: to read and search definitions, which [Rights.Add] adds.
func Terminology() []access.Grant { return access.Terminology() }

// NewShared returns the default rules, changed by a site's own.
func NewShared(own Shared) Shared { return access.NewShared(own) }

// SharedRule returns the rule with a name; nil if there is none.
func SharedRule(name string) *access.Rule { return access.RuleNamed(name) }

// SharedRules are the names of the rules that a site can give to types.
func SharedRules() []string { return access.RuleNames() }

// Decision is what was decided about a request, and why.
type Decision struct {
	// Interaction is what was asked for. Its Kind is 0 if it is no interaction of FHIR's.
	Interaction interaction.Interaction
	// Changes says that the interaction may change something.
	Changes bool
	// Err is why it was refused, or why it failed; nil if it was answered.
	Err error

	rights *access.Rights
}

// Scope is the scope that allows it: the first, if several do. Empty if none does, or none is needed.
func (d Decision) Scope() string { return allowing(d.rights, d.Interaction) }

// Refused reports whether the request was refused, rather than answered or not possible at present.
func (d Decision) Refused() bool {
	refusal, ok := errors.AsType[*guard.Error](d.Err)
	return ok && refusal.Status < 500
}

// allowing is the scope that allows an interaction.
func allowing(rights *access.Rights, i interaction.Interaction) string {
	permission := i.Permission()
	if permission == 0 {
		return ""
	}
	for _, g := range rights.For(i.Type, permission) {
		return g.Scope
	}
	return ""
}

// RelatedPatients are the ids of the patients for whom a RelatedPerson or a Person acts now, as the FHIR server has it. The
// memory counts for the client and the person of the token.
func (e *Enforcer) RelatedPatients(r *http.Request, next message.NextHandler, user interaction.Reference, t *guard.Token) ([]string, error) {
	x, at := fhirserver.New(e.Base, e.Limits, e.share(t), next, r), message.Addresses{Path: e.Base, Base: e.BaseURL}
	defer x.Share.Release()
	a, err := x.Ask(r.Context(), message.Get(user.String(), ""))
	if err != nil || a.Status != http.StatusOK || !a.IsJSON() {
		return nil, err
	}
	res, err := at.Parse(a.Body)
	if err != nil || res.Type != user.Type || res.ID != user.ID {
		return nil, err
	}
	return relationship.Patients(res, time.Now()), nil
}

// share returns a share of the memory that counts for the token's client and person. The token of a client itself has no
// person.
func (e *Enforcer) share(t *guard.Token) *fairmemory.Share {
	if t == nil {
		return e.Memory.Share()
	}
	client := fairmemory.Client(t.Issuer, t.ClientID)
	if t.Subject == t.ClientID {
		return e.Memory.Share(client)
	}
	return e.Memory.Share(fairmemory.Person(t.Issuer, t.Subject), client)
}

package enforce

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/address"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/export"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
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

// Serve answers a request as far as the bearer's rights go. Any error is a *guard.Error or the next handler's.
func (e *Enforcer) Serve(w http.ResponseWriter, r *http.Request, next message.NextHandler, b Bearer) error {
	at := message.Addresses{Path: e.Base, Base: e.BaseURL}
	x := &exchange{e: e, bearer: b, r: r, server: fhirserver.New(e.Base, e.Limits, e.share(b.Token), next, r)}
	x.judge = judge.Judge{Server: &x.server, At: at, Policies: e.Policies, R: r, Token: b.Token, Granted: b.Rights}
	x.pages = paging.Pages{Sealing: e.Sealing, States: e.PageStates, Binding: b.Binding, At: at, AsSent: len(e.Policies) > 0}
	x.rewriting = x.newRewriting()
	x.server.Observe = x.rewriting.observe
	defer x.server.Share.Release()
	i, a, err := x.serve(w)
	if err == nil && a != nil && !x.isContent {
		err = x.rewriting.judged(a)
	}
	if err == nil && a != nil {
		x.server.Share.ShrinkTo(int64(len(a.Body)))
		err = a.Write(w, r)
		if a.Buffer != nil {
			message.GiveBack(a.Buffer)
		}
	}
	if refusal, ok := errors.AsType[*guard.Error](err); ok {
		refusal.Scope = b.Rights.WithoutHeld(refusal.Scope)
	}
	if e.Decided != nil {
		e.Decided(r, b, x.decision(i, err))
	}
	if x.aborted {
		panic(http.ErrAbortHandler)
	}
	return err
}

// sealedLinks are the paths below the FHIR base that lead to what was sealed for the token.
var sealedLinks = []struct {
	path  string
	serve func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, *message.Answer, error)
}{
	{paging.PagePath, (*exchange).servePage},
	{export.JobPath, func(x *exchange, _ http.ResponseWriter, sealed string) (interaction.Interaction, *message.Answer, error) {
		return x.beforePolicies().exports().ServeJob(sealed)
	}},
	{export.FilePath, func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, *message.Answer, error) {
		i, err := x.beforePolicies().exports().ServeFile(w, sealed)
		return i, nil, err
	}},
}

// serve answers the client's request, and tells which interaction it is. Without an answer it has written one itself.
func (x *exchange) serve(w http.ResponseWriter) (i interaction.Interaction, a *message.Answer, err error) {
	c, err := x.call()
	if err != nil {
		return i, nil, err
	}
	for _, l := range sealedLinks {
		if sealed, ok := strings.CutPrefix(c.Path, l.path); ok {
			return l.serve(x, w, sealed)
		}
	}
	if i, err = c.Interaction(); err != nil {
		return i, nil, err
	}
	if x.passes(i) && x.judge.LeavesPassing(c, i) {
		return i, nil, x.pass(w, c, i)
	}
	if x.isHopeless(i) {
		return i, nil, message.Refused(x.judge.Rights(), i)
	}
	if c, i, err = x.withBody(c, i); err != nil {
		return i, nil, err
	}
	if err := message.CheckFormat(x.r.Header, i.Parameters); err != nil && !takesContent(x.r.Header, i) {
		return i, nil, err
	}
	if i.Kind == interaction.Read && takesContent(x.r.Header, i) {
		x.isContent = true
		a, err = x.answerContent(x.r.Context(), w, c, i)
		return i, a, err
	}
	a, err = x.beforePolicies().Answer(x.r.Context(), c, i)
	if err == nil && isBinary(i) && wantsContent(x.r.Header, i, a) {
		x.isContent = true
		a, err = content(a)
	}
	return i, a, err
}

// isHopeless reports whether no scope allows the interaction whatever its body says, which then is not read.
func (x *exchange) isHopeless(i interaction.Interaction) bool {
	if i.Type == "" || i.Type == smart.AnyType || len(x.e.Policies) > 0 {
		return false
	}
	for p := smart.Create; p <= smart.Search; p <<= 1 {
		if i.Permission()&p != 0 && len(x.judge.Rights().For(i.Type, p)) == 0 {
			return true
		}
	}
	return false
}

// judging tells that a call is about to be judged.
func (x *exchange) judging(ctx context.Context, i interaction.Interaction) (context.Context, func(error)) {
	if x.e.Judging == nil {
		return ctx, func(error) {}
	}
	return x.e.Judging(ctx, i)
}

// passes reports whether a request goes to the next handler as it is, and its answer to the client.
func (x *exchange) passes(i interaction.Interaction) bool {
	row := interactions[i.Kind]
	return row.passes != nil && row.passes(x, i) && paging.RefusePaging(i.Parameters) == nil
}

// servePage answers a page link.
func (x *exchange) servePage(w http.ResponseWriter, sealed string) (i interaction.Interaction, a *message.Answer, err error) {
	if err := message.CheckFormat(x.r.Header, nil); err != nil {
		return i, nil, err
	}
	c, i, at, err := x.pages.Opened(x.r, sealed)
	if err != nil {
		return i, nil, err
	}
	if len(at.Places) == 1 && !at.IsStart() && x.passes(i) && x.judge.LeavesPassing(c, i) {
		r := x.r
		r.URL = &url.URL{Path: strings.TrimSuffix(x.e.Base+"/"+at.Places[0].Path, "/"), RawQuery: at.Places[0].Query}
		r.RequestURI = r.URL.RequestURI()
		return i, nil, x.pass(w, c, i)
	}
	ctx, done := x.judging(x.r.Context(), i)
	defer func() { done(err) }()
	of, err := x.beforePolicies().forCall(ctx, c, i)
	if err != nil {
		return i, nil, err
	}
	row := interactions[i.Kind]
	if row.page == nil {
		return i, nil, message.NotFound()
	}
	a, err = row.page(ctx, of, c, i, at, x.pages.At.URL(paging.PagePath+sealed, ""))
	return i, a, err
}

// answerer answers calls of an exchange, and the entries of a bundle among them: see [bundle.Bundles.Entries].
type answerer struct {
	*exchange
	judge   *judge.Judge    // of the call, in place of that of the client's request
	collect write.Collector // of what a write comes to in a transaction; nil: it is sent
}

// beforePolicies returns the answerer of the client's request, which policies have not judged yet.
func (x *exchange) beforePolicies() answerer { return answerer{exchange: x, judge: &x.judge} }

// forCall returns the answerer of a call, limited by its scopes and policies.
func (x answerer) forCall(ctx context.Context, c message.Call, i interaction.Interaction) (answerer, error) {
	of, err := x.judge.ForCall(ctx, c, i)
	return answerer{exchange: x.exchange, judge: of}, err
}

// Answer answers a call, the client's or an entry of its batch.
func (x answerer) Answer(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	return x.Collect(ctx, c, i, nil)
}

// Collect is Answer for a write that is not sent yet, unless the collector is nil.
func (x answerer) Collect(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (a *message.Answer, err error) {
	ctx, done := x.judging(ctx, i)
	defer func() { done(err) }()
	of, err := x.forCall(ctx, c, i)
	if err != nil {
		return nil, err
	}
	row := interactions[i.Kind]
	if row.answer == nil {
		return nil, message.NotFound()
	}
	of.collect = to
	if a, err = row.answer(ctx, of, c, i); a != nil {
		x.rewriting.headers(a.Header, c.Path)
	}
	return a, err
}

// CheckSearch refuses a search that would be refused, and asks for nothing that it finds.
func (x answerer) CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error {
	of, err := x.forCall(ctx, c, i)
	if err != nil {
		return err
	}
	return of.searches().Check(ctx, c, i)
}

// PassesSingle reports whether an entry about one resource needs no judging.
func (x *exchange) PassesSingle(c message.Call, i interaction.Interaction) bool {
	return interactions[i.Kind].single && x.passes(i) && x.judge.LeavesPassing(c, i)
}

// Decided tells of the decision about an entry.
func (x *exchange) Decided(i interaction.Interaction, err error) {
	if x.e.Decided != nil {
		x.e.Decided(x.r, x.bearer, x.decision(i, err))
	}
}

// decision is the decision about an interaction.
func (x *exchange) decision(i interaction.Interaction, err error) Decision {
	return Decision{Interaction: i, rights: x.judge.Rights(), Changes: x.changes(i), Err: err}
}

// changes reports whether an interaction may change something.
func (x *exchange) changes(i interaction.Interaction) bool {
	if i.Kind == interaction.Operation {
		op, ok := x.e.Operations.Find(i)
		return ok && op.Changes()
	}
	return i.Kind == interaction.Bundle || i.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

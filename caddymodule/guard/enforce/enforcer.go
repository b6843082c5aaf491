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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/relatedperson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Enforcer restricts requests to a FHIR server, and their responses, to the scopes of the token. It is safe for concurrent use.
// It must not be modified after first use.
type Enforcer struct {
	// Base is the path of the FHIR API, such as /fhir/R4. Required.
	Base string
	// BaseURL is the public URL of the FHIR API. It is prepended to relative links. Default: links stay relative.
	BaseURL string
	// TypeRules are the rules for types outside of compartments. Default: patient-bound grants do not cover these types.
	TypeRules TypeRules
	// Sealing seals page links and links to export jobs. Required.
	Sealing Sealing
	// PageStates stores page states that are too long for a link. Default: links contain all states, whatever their length.
	PageStates PageStates
	// Parameters are the supported search parameters: those of R4 and any site-specific ones. Default: those of R4.
	Parameters searchparam.Set
	// SupportsCompartmentSearch enables searches by Patient/id/Type (FHIR R4 §3.1.1.4), which few FHIR servers support.
	// Default: one search per membership parameter, with merged results.
	SupportsCompartmentSearch bool
	// Operations are the permitted operations. Default: those of [NewOperations].
	Operations operation.Operations
	// ExpandScopes are alternative scopes for terminology operations; a token needs one of them. Default: any token
	// suffices.
	ExpandScopes []string
	// Policies judge requests and resources in addition to scopes. Default: none.
	Policies []rule.Policy
	// AllowsUpsert permits an update to create a resource even if the scopes do not cover all resources of the type. This
	// reveals to the client which ids exist. Default: such updates get 404, like updates of uncovered resources.
	AllowsUpsert bool
	// Metadata answers GET metadata in batches. Default: the FHIR server's statement with rewritten addresses.
	Metadata *capability.Metadata
	// Limits are the limits of a single request.
	Limits Limits
	// Memory limits the total size of the bodies and responses that are buffered for judging. It is shared fairly between
	// clients and persons. Default: unlimited.
	Memory *fairmemory.Memory
	// BeforeJudging is called before a call is judged. It returns the context for judging and a function that is called
	// afterwards. Default: none.
	BeforeJudging func(ctx context.Context, i interaction.Interaction) (context.Context, func(error))
	// Logger logs responses that operators should investigate: those with removed headers and aborted ones. Default: no log.
	Logger *slog.Logger
	// OnDecision is called with each decision, after the response. Default: none.
	OnDecision func(r *http.Request, b Bearer, d Decision)

	conditionalDeletes write.ConditionalDeletes
	bases              address.Bases // base URLs of the FHIR server, learned from its responses
}

// Bearer is the bearer of the request's access token.
type Bearer struct {
	// Rights are the permissions of the token. Required.
	Rights *Rights
	// Binding identifies everything that a page link is bound to: subject, client, patient and scopes.
	Binding string
	// Token is the token, for policies and decisions. Optional.
	Token *guard.Token
}

type (
	// Sealing seals links so that only this server can create and open them.
	Sealing = paging.Sealing

	// PageStates stores page states that are too long for a link.
	PageStates = paging.PageStates

	// Operation is a permitted operation.
	Operation = operation.Operation

	// Limits are the limits of a single request. The zero value means the defaults.
	Limits = fhirserver.Limits
)

// ErrNoPageState means that a page state has expired or was discarded.
var ErrNoPageState = paging.ErrNoState

// NewOperations returns the default operations and the site-specific ones in own, which replace defaults of the same name.
func NewOperations(own ...Operation) operation.Operations { return operation.NewOperations(own...) }

// ParseOperation parses the definition of an operation: its name, effect and resource types.
func ParseOperation(words ...string) (Operation, error) { return operation.ParseOperation(words...) }

// MaxResponseSize returns the default maximum size of a judged response in bytes, for memory in bytes.
func MaxResponseSize(memory int64) int64 { return fhirserver.MaxResponseSize(memory) }

// NewMemory returns a memory of size bytes for responses up to the limit in l. If size is 0, it is 256 MiB, or more if the
// limit requires it.
func NewMemory(size int64, l Limits) (*fairmemory.Memory, error) {
	return fhirserver.NewMemory(size, l)
}

type (
	// Holder is the holder of a token.
	Holder = access.Holder

	// Rights are the permissions of a token.
	Rights = access.Rights

	// TypeRules are the rules for types outside of compartments.
	TypeRules = access.TypeRules
)

// NewRights returns the rights of a token's holder. A scope grants nothing if it is malformed, lacks its launch context, or has
// a constraint that cannot be checked.
func NewRights(h Holder, shared TypeRules) *Rights { return access.New(h, shared) }

// TerminologyGrants returns the grants that every valid token has, for [Rights.Add]: reading and searching definitions.
func TerminologyGrants() []access.Grant { return access.TerminologyGrants() }

// NewTypeRules returns the default rules, overridden by own.
func NewTypeRules(own TypeRules) TypeRules { return access.NewTypeRules(own) }

// FindTypeRule returns the rule with the given name, or nil.
func FindTypeRule(name string) *access.Rule { return access.FindRule(name) }

// TypeRuleNames returns the names of the rules that a site can assign to types.
func TypeRuleNames() []string { return access.RuleNames() }

// Decision is the access decision for a request.
type Decision struct {
	// Interaction is the requested interaction. Its Kind is 0 if the request is not a FHIR interaction.
	Interaction interaction.Interaction
	// ChangesData reports whether the interaction may change data.
	ChangesData bool
	// Err is the cause of a rejection or failure; nil if the request succeeded.
	Err error

	rights *access.Rights
}

// Scope returns the first scope that allows the interaction. It is empty if no scope allows it, or if it requires none.
func (d Decision) Scope() string { return firstAllowingScope(d.rights, d.Interaction) }

// IsRejected reports whether the request was rejected. Successful and failed (5xx) requests are not rejections.
func (d Decision) IsRejected() bool {
	rejection, ok := errors.AsType[*guard.Error](d.Err)
	return ok && rejection.Status < 500
}

// firstAllowingScope returns the first scope that allows an interaction.
func firstAllowingScope(rights *access.Rights, i interaction.Interaction) string {
	permission := i.Permission()
	if permission == 0 {
		return ""
	}
	for _, g := range rights.GrantsFor(i.Type, permission) {
		return g.Scope
	}
	return ""
}

// RelatedPatients returns the ids of the patients for whom a RelatedPerson or a Person currently acts, according to the
// FHIR server. The buffered response counts toward the memory of the token's client and person.
func (e *Enforcer) RelatedPatients(r *http.Request, next message.NextHandler, user interaction.Reference, t *guard.Token) ([]string, error) {
	x, at := fhirserver.New(e.Base, e.Limits, e.memoryShare(t), next, r), message.Addresses{Path: e.Base, Base: e.BaseURL}
	defer x.Share.Release()
	a, err := x.Do(r.Context(), message.NewGet(user.String(), ""))
	if err != nil || a.Status != http.StatusOK || !a.IsJSON() {
		return nil, err
	}
	res, err := at.Parse(a.Body)
	if err != nil || res.Type != user.Type || res.ID != user.ID {
		return nil, err
	}
	return relatedperson.Patients(res, time.Now()), nil
}

// memoryShare returns the memory share of the token's client and person. A token that a client got for itself has no person.
func (e *Enforcer) memoryShare(t *guard.Token) *fairmemory.Share {
	if t == nil {
		return e.Memory.Share()
	}
	client := fairmemory.Client(t.Issuer, t.ClientID)
	if t.Subject == t.ClientID {
		return e.Memory.Share(client)
	}
	return e.Memory.Share(fairmemory.Person(t.Issuer, t.Subject), client)
}

// Serve answers a request within the bearer's rights. Errors are a *guard.Error or come from the next handler.
func (e *Enforcer) Serve(w http.ResponseWriter, r *http.Request, next message.NextHandler, b Bearer) error {
	at := message.Addresses{Path: e.Base, Base: e.BaseURL}
	x := &exchange{enforcer: e, bearer: b, request: r, server: fhirserver.New(e.Base, e.Limits, e.memoryShare(b.Token), next, r)}
	x.judge = judge.Judge{Server: &x.server, Addresses: at, Policies: e.Policies, Request: r, Token: b.Token, GrantedRights: b.Rights}
	x.pages = paging.Pages{Sealing: e.Sealing, States: e.PageStates, Binding: b.Binding, Addresses: at, FullRequestLinks: len(e.Policies) > 0}
	x.rewriter = x.newRewriter()
	x.server.Observe = x.rewriter.learnFromResponse
	defer x.server.Share.Release()
	i, a, err := x.serve(w)
	if err == nil && a != nil && !x.isBinaryContent {
		err = x.rewriter.rewriteJudged(a)
	}
	if err == nil && a != nil {
		x.server.Share.ShrinkTo(int64(len(a.Body)))
		err = a.Write(w, r)
		if a.Buffer != nil {
			message.ReleaseBuffer(a.Buffer)
		}
	}
	if rejection, ok := errors.AsType[*guard.Error](err); ok {
		rejection.Scope = b.Rights.WithoutGranted(rejection.Scope)
	}
	if e.OnDecision != nil {
		e.OnDecision(r, b, x.decision(i, err))
	}
	if x.isAborted {
		panic(http.ErrAbortHandler)
	}
	return err
}

// sealedLinks maps paths below the FHIR base to the handlers of sealed links.
var sealedLinks = []struct {
	path  string
	serve func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, *message.Response, error)
}{
	{paging.PagePath, (*exchange).servePage},
	{export.JobPath, func(x *exchange, _ http.ResponseWriter, sealed string) (interaction.Interaction, *message.Response, error) {
		return x.handlerBeforePolicies().exportHandler().ServeJob(sealed)
	}},
	{export.FilePath, func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, *message.Response, error) {
		i, err := x.handlerBeforePolicies().exportHandler().ServeFile(w, sealed)
		return i, nil, err
	}},
}

// serve answers the client's request and returns its interaction. If a is nil, the response has already been written.
func (x *exchange) serve(w http.ResponseWriter) (i interaction.Interaction, a *message.Response, err error) {
	c, err := x.toCall()
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
	if x.mayForward(i) && x.judge.MayForward(c, i) {
		return i, nil, x.forward(w, c, i)
	}
	if x.isDeniedForEveryBody(i) {
		return i, nil, message.InsufficientScope(x.judge.Rights(), i)
	}
	if c, i, err = x.withBody(c, i); err != nil {
		return i, nil, err
	}
	if err := message.CheckFormat(x.request.Header, i.Parameters); err != nil && !acceptsBinaryContent(x.request.Header, i) {
		return i, nil, err
	}
	if i.Kind == interaction.Read && acceptsBinaryContent(x.request.Header, i) {
		x.isBinaryContent = true
		a, err = x.serveContent(x.request.Context(), w, c, i)
		return i, a, err
	}
	a, err = x.handlerBeforePolicies().Handle(x.request.Context(), c, i)
	if err == nil && readsBinary(i) && prefersBinaryContent(x.request.Header, i, a) {
		x.isBinaryContent = true
		a, err = decodeContent(a)
	}
	return i, a, err
}

// isDeniedForEveryBody reports whether no scope allows the interaction with any body, so the body need not be read.
func (x *exchange) isDeniedForEveryBody(i interaction.Interaction) bool {
	if i.Type == "" || i.Type == smart.AnyType || len(x.enforcer.Policies) > 0 {
		return false
	}
	for p := smart.Create; p <= smart.Search; p <<= 1 {
		if i.Permission()&p != 0 && len(x.judge.Rights().GrantsFor(i.Type, p)) == 0 {
			return true
		}
	}
	return false
}

// startJudging calls [Enforcer.BeforeJudging] if it is set.
func (x *exchange) startJudging(ctx context.Context, i interaction.Interaction) (context.Context, func(error)) {
	if x.enforcer.BeforeJudging == nil {
		return ctx, func(error) {}
	}
	return x.enforcer.BeforeJudging(ctx, i)
}

// mayForward reports whether the request and its response pass unjudged.
func (x *exchange) mayForward(i interaction.Interaction) bool {
	row := dispatchTable[i.Kind]
	return row.mayForward != nil && row.mayForward(x, i) && paging.RejectPagingLinks(i.Parameters) == nil
}

func (x *exchange) servePage(w http.ResponseWriter, sealed string) (i interaction.Interaction, a *message.Response, err error) {
	if err := message.CheckFormat(x.request.Header, nil); err != nil {
		return i, nil, err
	}
	c, i, at, err := x.pages.Open(x.request, sealed)
	if err != nil {
		return i, nil, err
	}
	if len(at.Branches) == 1 && !at.IsStart() && x.mayForward(i) && x.judge.MayForward(c, i) {
		r := x.request
		r.URL = &url.URL{Path: strings.TrimSuffix(x.enforcer.Base+"/"+at.Branches[0].Path, "/"), RawQuery: at.Branches[0].Query}
		r.RequestURI = r.URL.RequestURI()
		return i, nil, x.forward(w, c, i)
	}
	ctx, done := x.startJudging(x.request.Context(), i)
	defer func() { done(err) }()
	of, err := x.handlerBeforePolicies().forCall(ctx, c, i)
	if err != nil {
		return i, nil, err
	}
	row := dispatchTable[i.Kind]
	if row.handlePage == nil {
		return i, nil, message.NotFound()
	}
	a, err = row.handlePage(ctx, of, c, i, at, x.pages.Addresses.URL(paging.PagePath+sealed, ""))
	return i, a, err
}

// callHandler answers the calls of an exchange, including the entries of a bundle: see [bundle.Handler.EntryHandler].
type callHandler struct {
	*exchange
	judge     *judge.Judge    // the call's judge; replaces the judge of the exchange
	collector write.Collector // collects the writes of a transaction; nil if writes are sent immediately
}

// handlerBeforePolicies returns the callHandler of the client's request, which policies have not judged yet.
func (x *exchange) handlerBeforePolicies() callHandler {
	return callHandler{exchange: x, judge: &x.judge}
}

// forCall returns the callHandler of a call, limited by its scopes and policies.
func (x callHandler) forCall(ctx context.Context, c message.Call, i interaction.Interaction) (callHandler, error) {
	of, err := x.judge.ForCall(ctx, c, i)
	return callHandler{exchange: x.exchange, judge: of}, err
}

// Handle answers a call: the client's request or an entry of its batch.
func (x callHandler) Handle(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	return x.CollectWrite(ctx, c, i, nil)
}

// CollectWrite is like Handle, but passes a write to the collector. If the collector is nil, the write is sent.
func (x callHandler) CollectWrite(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (a *message.Response, err error) {
	ctx, done := x.startJudging(ctx, i)
	defer func() { done(err) }()
	of, err := x.forCall(ctx, c, i)
	if err != nil {
		return nil, err
	}
	row := dispatchTable[i.Kind]
	if row.handle == nil {
		return nil, message.NotFound()
	}
	of.collector = to
	if a, err = row.handle(ctx, of, c, i); a != nil {
		x.rewriter.rewriteHeaders(a.Header, c.Path)
	}
	return a, err
}

// CheckSearch returns the rejection of a search, if any, without executing the search.
func (x callHandler) CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error {
	of, err := x.forCall(ctx, c, i)
	if err != nil {
		return err
	}
	return of.searchHandler().CheckSearch(ctx, c, i)
}

// ForwardsEntry reports whether an entry for a single resource passes unjudged.
func (x *exchange) ForwardsEntry(c message.Call, i interaction.Interaction) bool {
	return dispatchTable[i.Kind].isSingleResource && x.mayForward(i) && x.judge.MayForward(c, i)
}

// ReportDecision reports the decision for an entry.
func (x *exchange) ReportDecision(i interaction.Interaction, err error) {
	if x.enforcer.OnDecision != nil {
		x.enforcer.OnDecision(x.request, x.bearer, x.decision(i, err))
	}
}

// decision returns the decision for an interaction.
func (x *exchange) decision(i interaction.Interaction, err error) Decision {
	return Decision{Interaction: i, rights: x.judge.Rights(), ChangesData: x.changesData(i), Err: err}
}

// changesData reports whether an interaction may change data.
func (x *exchange) changesData(i interaction.Interaction) bool {
	if i.Kind == interaction.Operation {
		op, ok := x.enforcer.Operations.Find(i)
		return ok && op.ChangesData()
	}
	return i.Kind == interaction.Bundle || i.Permission()&(smart.Create|smart.Update|smart.Delete) != 0
}

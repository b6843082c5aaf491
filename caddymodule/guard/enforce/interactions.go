package enforce

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/capability"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/bundle"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/export"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/read"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/search"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// row is the handling of an interaction. An empty field denies.
type row struct {
	// answer answers a call.
	answer func(ctx context.Context, x answerer, c message.Call, i interaction.Interaction) (*message.Response, error)
	// passes reports whether the scopes cover every resource that the request and response can contain, so that both pass
	// unjudged.
	passes func(x *exchange, i interaction.Interaction) bool
	// page answers a page link from a position on.
	page func(ctx context.Context, x answerer, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error)
	// single is true for interactions with a single resource, named by the path or sent as the body.
	single bool
}

// interactions is the dispatch table by [interaction.Kind].
var interactions [1 << 8]row

func init() { // in init, because entries of a bundle are dispatched by the same table
	instanceHistory := answering(answerer.reads, (*read.Reads).InstanceHistory)
	history := answering(answerer.reads, (*read.Reads).History)
	pageOfHistory := paged(answerer.reads, (*read.Reads).HistoryPage)
	found := answering(answerer.searches, (*search.Searches).Search)
	pageOfSearch := paged(answerer.searches, (*search.Searches).PageAt)
	read := row{answer: answering(answerer.reads, (*read.Reads).Read), passes: passesRead, single: true}
	create := row{answer: answering(answerer.writes, (*write.Writes).Create), passes: passesWrite, single: true}
	update := row{answer: answering(answerer.writes, (*write.Writes).Update), passes: passesWrite, single: true}
	patch := row{answer: answering(answerer.writes, (*write.Writes).Patch), passes: passesWrite, single: true}
	remove := row{answer: answering(answerer.writes, (*write.Writes).Delete), passes: passesDelete, single: true}
	interactions = [1 << 8]row{
		interaction.Read:              read,
		interaction.VRead:             read,
		interaction.InstanceHistory:   {answer: instanceHistory, passes: passesRead, page: pageOfHistory},
		interaction.TypeHistory:       {answer: history, passes: passesAll, page: pageOfHistory},
		interaction.SystemHistory:     {answer: history, passes: passesAll, page: pageOfHistory},
		interaction.TypeSearch:        {answer: found, passes: passesSearch, page: pageOfSearch},
		interaction.CompartmentSearch: {answer: found, passes: passesCompartment, page: pageOfSearch},
		interaction.SystemSearch:      {answer: found, passes: passesAll, page: pageOfSearch},
		interaction.Create:            create,
		interaction.Update:            update,
		interaction.Patch:             patch,
		interaction.Delete:            remove,
		interaction.ConditionalCreate: {answer: create.answer},
		interaction.ConditionalUpdate: {answer: update.answer},
		interaction.ConditionalPatch:  {answer: patch.answer},
		interaction.ConditionalDelete: {answer: remove.answer},
		interaction.Bundle:            {answer: answering(answerer.bundles, (*bundle.Bundles).Bundle)},
		interaction.Operation:         {answer: answering(answerer.operations, (*operation.Calls).Operation), passes: passesOperation, page: paged(answerer.operations, (*operation.Calls).OperationPage)},
		interaction.Capabilities:      {answer: answerCapabilities},
	}
}

// answering returns a function that answers a call with the answerer for its interaction.
func answering[T any](by func(answerer) T, answer func(T, context.Context, message.Call, interaction.Interaction) (*message.Response, error)) func(context.Context, answerer, message.Call, interaction.Interaction) (*message.Response, error) {
	return func(ctx context.Context, x answerer, c message.Call, i interaction.Interaction) (*message.Response, error) {
		return answer(by(x), ctx, c, i)
	}
}

// paged is like answering, but for a page link.
func paged[T any](by func(answerer) T, answer func(T, context.Context, message.Call, interaction.Interaction, paging.Position, string) (*message.Response, error)) func(context.Context, answerer, message.Call, interaction.Interaction, paging.Position, string) (*message.Response, error) {
	return func(ctx context.Context, x answerer, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error) {
		return answer(by(x), ctx, c, i, at, self)
	}
}

func (x answerer) reads() *read.Reads {
	return &read.Reads{Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages}
}

func (x answerer) searches() *search.Searches {
	return &search.Searches{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages, Parameters: x.e.Parameters, Shared: x.e.Shared,
		InCompartments: x.e.CompartmentSearch, Requests: x.server.Limits.Requests, Limit: x.server.Limits.ResponseBytes,
	}
}

func (x answerer) writes() *write.Writes {
	return &write.Writes{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Searches: x.searches(), Reads: x.reads(), Shared: x.e.Shared,
		Upsert: x.e.Upsert, ConditionalDeletes: &x.e.conditionalDeletes, Limit: x.server.Limits.Body, Collect: x.collect,
	}
}

func (x answerer) operations() *operation.Calls {
	return &operation.Calls{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages, Writes: x.writes(), Exports: x.exports(),
		List: x.e.Operations, ExpandScopes: x.e.ExpandScopes, Shared: x.e.Shared, Limit: x.server.Limits.ResponseBytes,
	}
}

func (x answerer) exports() *export.Exports {
	return &export.Exports{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Sealing: x.e.Sealing, Binding: x.bearer.Binding, R: x.r,
		Parameters: x.e.Parameters, Limit: x.server.Limits.ResponseBytes,
	}
}

func (x answerer) bundles() *bundle.Bundles {
	return &bundle.Bundles{Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Entries: x, MaxEntries: x.server.Limits.Entries, Limit: x.server.Limits.ResponseBytes}
}

func passesRead(x *exchange, i interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(i.Type, smart.Read)
}

// passesAll reports whether a scope covers all resources of all types.
func passesAll(x *exchange, _ interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(smart.AnyType, smart.Search)
}

func passesSearch(x *exchange, i interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(smart.AnyType, smart.Search) || x.judge.Rights().IsUnrestricted(i.Type, smart.Search) && x.r.Method == http.MethodGet && x.beforePolicies().searches().IsPlain(i)
}

func passesCompartment(x *exchange, i interaction.Interaction) bool {
	return x.e.CompartmentSearch && passesSearch(x, i)
}

// passesWrite reports whether a write passes. Its body may contain conditional references, which search any type.
func passesWrite(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return !write.MayAct(rights, i.Type) && len(rights.Opening(i.Type)) == 0 && rights.IsUnrestricted(i.Type, i.Permission()|smart.Read) && rights.IsUnrestricted(smart.AnyType, smart.Search) &&
		write.MayExtend(rights, x.r.Header, i)
}

func passesDelete(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return rights.IsUnrestricted(i.Type, smart.Delete|smart.Read) && write.MayExtend(rights, x.r.Header, i)
}

// passesOperation decides without building the whole answerer, because most operations pass.
func passesOperation(x *exchange, i interaction.Interaction) bool {
	deciding := operation.Calls{Judge: &x.judge, List: x.e.Operations, ExpandScopes: x.e.ExpandScopes}
	return deciding.ForwardsUnjudged(x.r.Method, i)
}

func answerCapabilities(ctx context.Context, x answerer, c message.Call, _ interaction.Interaction) (*message.Response, error) {
	m := x.e.Metadata
	if m == nil {
		m = &capability.Metadata{Changes: capability.Changes{BaseURL: x.e.BaseURL}}
	}
	return m.Answer(&x.server, message.Get(c.Path, c.Query), x.r.WithContext(ctx))
}

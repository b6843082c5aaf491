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

// dispatchEntry defines how an interaction is handled. Its zero value denies the interaction.
type dispatchEntry struct {
	// handle answers a call.
	handle func(ctx context.Context, x callHandler, c message.Call, i interaction.Interaction) (*message.Response, error)
	// mayForward reports whether the scopes cover every resource that the request and response can contain, so both pass
	// unjudged.
	mayForward func(x *exchange, i interaction.Interaction) bool
	// handlePage answers a page link, starting at a position.
	handlePage func(ctx context.Context, x callHandler, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error)
	// isSingleResource is true for interactions with a single resource, which is identified by the path or sent as the body.
	isSingleResource bool
}

// dispatchTable is indexed by [interaction.Kind].
var dispatchTable [1 << 8]dispatchEntry

func init() { // in init, because the handlers of bundle entries refer to the table
	instanceHistory := newHandler(callHandler.readHandler, (*read.Handler).InstanceHistory)
	history := newHandler(callHandler.readHandler, (*read.Handler).History)
	pageOfHistory := newPageHandler(callHandler.readHandler, (*read.Handler).HistoryPage)
	found := newHandler(callHandler.searchHandler, (*search.Handler).Search)
	pageOfSearch := newPageHandler(callHandler.searchHandler, (*search.Handler).HandlePage)
	read := dispatchEntry{handle: newHandler(callHandler.readHandler, (*read.Handler).Read), mayForward: mayForwardRead, isSingleResource: true}
	create := dispatchEntry{handle: newHandler(callHandler.writeHandler, (*write.Handler).Create), mayForward: mayForwardWrite, isSingleResource: true}
	update := dispatchEntry{handle: newHandler(callHandler.writeHandler, (*write.Handler).Update), mayForward: mayForwardWrite, isSingleResource: true}
	patch := dispatchEntry{handle: newHandler(callHandler.writeHandler, (*write.Handler).Patch), mayForward: mayForwardWrite, isSingleResource: true}
	remove := dispatchEntry{handle: newHandler(callHandler.writeHandler, (*write.Handler).Delete), mayForward: mayForwardDelete, isSingleResource: true}
	dispatchTable = [1 << 8]dispatchEntry{
		interaction.Read:              read,
		interaction.VRead:             read,
		interaction.InstanceHistory:   {handle: instanceHistory, mayForward: mayForwardRead, handlePage: pageOfHistory},
		interaction.TypeHistory:       {handle: history, mayForward: mayForwardAllTypes, handlePage: pageOfHistory},
		interaction.SystemHistory:     {handle: history, mayForward: mayForwardAllTypes, handlePage: pageOfHistory},
		interaction.TypeSearch:        {handle: found, mayForward: mayForwardSearch, handlePage: pageOfSearch},
		interaction.CompartmentSearch: {handle: found, mayForward: mayForwardCompartment, handlePage: pageOfSearch},
		interaction.SystemSearch:      {handle: found, mayForward: mayForwardAllTypes, handlePage: pageOfSearch},
		interaction.Create:            create,
		interaction.Update:            update,
		interaction.Patch:             patch,
		interaction.Delete:            remove,
		interaction.ConditionalCreate: {handle: create.handle},
		interaction.ConditionalUpdate: {handle: update.handle},
		interaction.ConditionalPatch:  {handle: patch.handle},
		interaction.ConditionalDelete: {handle: remove.handle},
		interaction.Bundle:            {handle: newHandler(callHandler.bundleHandler, (*bundle.Handler).Handle)},
		interaction.Operation:         {handle: newHandler(callHandler.operationHandler, (*operation.Handler).Handle), mayForward: mayForwardOperation, handlePage: newPageHandler(callHandler.operationHandler, (*operation.Handler).HandlePage)},
		interaction.Capabilities:      {handle: handleCapabilities},
	}
}

// newHandler returns a dispatch function that creates a handler with by and calls handle on it.
func newHandler[T any](by func(callHandler) T, handle func(T, context.Context, message.Call, interaction.Interaction) (*message.Response, error)) func(context.Context, callHandler, message.Call, interaction.Interaction) (*message.Response, error) {
	return func(ctx context.Context, x callHandler, c message.Call, i interaction.Interaction) (*message.Response, error) {
		return handle(by(x), ctx, c, i)
	}
}

// newPageHandler is like newHandler, but for page links.
func newPageHandler[T any](by func(callHandler) T, handlePage func(T, context.Context, message.Call, interaction.Interaction, paging.Position, string) (*message.Response, error)) func(context.Context, callHandler, message.Call, interaction.Interaction, paging.Position, string) (*message.Response, error) {
	return func(ctx context.Context, x callHandler, c message.Call, i interaction.Interaction, at paging.Position, self string) (*message.Response, error) {
		return handlePage(by(x), ctx, c, i, at, self)
	}
}

func (x callHandler) readHandler() *read.Handler {
	return &read.Handler{Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages}
}

func (x callHandler) searchHandler() *search.Handler {
	return &search.Handler{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages, Parameters: x.enforcer.Parameters, TypeRules: x.enforcer.TypeRules,
		SupportsCompartments: x.enforcer.SupportsCompartmentSearch, MaxRequests: x.server.Limits.Requests, MaxResponseBytes: x.server.Limits.ResponseBytes,
	}
}

func (x callHandler) writeHandler() *write.Handler {
	return &write.Handler{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, SearchHandler: x.searchHandler(), ReadHandler: x.readHandler(), TypeRules: x.enforcer.TypeRules,
		AllowsUpsert: x.enforcer.AllowsUpsert, ConditionalDeletes: &x.enforcer.conditionalDeletes, MaxBodyBytes: x.server.Limits.BodyBytes, Collector: x.collector,
	}
}

func (x callHandler) operationHandler() *operation.Handler {
	return &operation.Handler{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Pages: x.pages, WriteHandler: x.writeHandler(), Exporter: x.exportHandler(),
		Operations: x.enforcer.Operations, ExpandScopes: x.enforcer.ExpandScopes, TypeRules: x.enforcer.TypeRules, MaxResponseBytes: x.server.Limits.ResponseBytes,
	}
}

func (x callHandler) exportHandler() *export.Handler {
	return &export.Handler{
		Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, Sealing: x.enforcer.Sealing, Binding: x.bearer.Binding, Request: x.request,
		Parameters: x.enforcer.Parameters, MaxLineBytes: x.server.Limits.ResponseBytes,
	}
}

func (x callHandler) bundleHandler() *bundle.Handler {
	return &bundle.Handler{Server: &x.server, Judge: x.judge, Addresses: x.pages.Addresses, EntryHandler: x, MaxEntries: x.server.Limits.Entries, MaxResponseBytes: x.server.Limits.ResponseBytes}
}

func mayForwardRead(x *exchange, i interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(i.Type, smart.Read)
}

// mayForwardAllTypes reports whether one scope covers all resources of all types.
func mayForwardAllTypes(x *exchange, _ interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(smart.AnyType, smart.Search)
}

func mayForwardSearch(x *exchange, i interaction.Interaction) bool {
	return x.judge.Rights().IsUnrestricted(smart.AnyType, smart.Search) || x.judge.Rights().IsUnrestricted(i.Type, smart.Search) && x.request.Method == http.MethodGet && x.handlerBeforePolicies().searchHandler().IsSingleTypeSearch(i)
}

func mayForwardCompartment(x *exchange, i interaction.Interaction) bool {
	return x.enforcer.SupportsCompartmentSearch && mayForwardSearch(x, i)
}

// mayForwardWrite reports whether a write passes unjudged. Its body may contain conditional references, which search any type.
func mayForwardWrite(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return !write.MayHaveSideEffects(rights, i.Type) && len(rights.PatientsWithBinaries(i.Type)) == 0 && rights.IsUnrestricted(i.Type, i.Permission()|smart.Read) && rights.IsUnrestricted(smart.AnyType, smart.Search) &&
		write.MayAffectOthers(rights, x.request.Header, i)
}

func mayForwardDelete(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return rights.IsUnrestricted(i.Type, smart.Delete|smart.Read) && write.MayAffectOthers(rights, x.request.Header, i)
}

// mayForwardOperation decides without building a callHandler, because most operations pass.
func mayForwardOperation(x *exchange, i interaction.Interaction) bool {
	handler := operation.Handler{Judge: &x.judge, Operations: x.enforcer.Operations, ExpandScopes: x.enforcer.ExpandScopes}
	return handler.MayForward(x.request.Method, i)
}

func handleCapabilities(ctx context.Context, x callHandler, c message.Call, _ interaction.Interaction) (*message.Response, error) {
	m := x.enforcer.Metadata
	if m == nil {
		m = &capability.Metadata{Changes: capability.Changes{BaseURL: x.enforcer.BaseURL}}
	}
	return m.Handle(&x.server, message.NewGet(c.Path, c.Query), x.request.WithContext(ctx))
}

package enforce

import (
	"context"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// row says what is done for an interaction. What it leaves out is refused.
type row struct {
	// answer answers a call.
	answer func(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error)
	// passes reports whether some scope is about every resource that request and answer can hold, so that they pass.
	passes func(x *exchange, i interaction.Interaction) bool
	// page answers a link to a page from a position on.
	page func(x *exchange, ctx context.Context, c call, i interaction.Interaction, at position, self string) (*answer, error)
	// single: it is about one resource, which its path names or its body is.
	single bool
}

// interactions is the one list of what is done.
var interactions map[interaction.Kind]row

func init() { // not above, since entries of a bundle are answered by the list again
	read := row{answer: answerRead, passes: passesRead, single: true}
	search := row{answer: answerSearch, passes: passesSearch, page: pageOfSearch}
	create := row{answer: writing((*writes).create), passes: passesWrite, single: true}
	update := row{answer: writing((*writes).update), passes: passesWrite, single: true}
	patch := row{answer: writing((*writes).patch), passes: passesWrite, single: true}
	remove := row{answer: writing((*writes).delete), passes: passesDelete, single: true}
	interactions = map[interaction.Kind]row{
		interaction.Read:              read,
		interaction.VRead:             read,
		interaction.InstanceHistory:   {answer: answerInstanceHistory, passes: passesRead, page: pageOfHistory},
		interaction.TypeHistory:       {answer: answerHistory, passes: passesAll, page: pageOfHistory},
		interaction.SystemHistory:     {answer: answerHistory, passes: passesAll, page: pageOfHistory},
		interaction.TypeSearch:        search,
		interaction.CompartmentSearch: {answer: answerSearch, passes: passesCompartment, page: pageOfSearch},
		interaction.SystemSearch:      {answer: answerSearch, passes: passesAll, page: pageOfSearch},
		interaction.Create:            create,
		interaction.Update:            update,
		interaction.Patch:             patch,
		interaction.Delete:            remove,
		interaction.ConditionalCreate: {answer: create.answer},
		interaction.ConditionalUpdate: {answer: update.answer},
		interaction.ConditionalPatch:  {answer: patch.answer},
		interaction.ConditionalDelete: {answer: remove.answer},
		interaction.Bundle:            {answer: answerBundle},
		interaction.Operation:         {answer: answerOperation, passes: passesOperation, page: pageOfOperation},
		interaction.Capabilities:      {answer: answerCapabilities},
	}
}

// sealedLinks are the paths below the FHIR base that lead to what was sealed for the token.
var sealedLinks = []struct {
	path  string
	serve func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, error)
}{
	{pagePath, (*exchange).servePage},
	{jobPath, func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
		i, a, err := x.exports().serveJob(sealed)
		return i, x.finish(w, a, err)
	}},
	{filePath, func(x *exchange, w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
		return x.exports().serveFile(w, sealed)
	}},
}

func (x *exchange) reads() *reads {
	return &reads{server: x.server, judge: x.judge, at: x.pages.at, pages: x.pages}
}

func (x *exchange) searches() *searches {
	return &searches{
		server: x.server, judge: x.judge, at: x.pages.at, pages: x.pages, parameters: x.e.Parameters, shared: x.e.Shared,
		inCompartments: x.e.CompartmentSearch, requests: x.server.limits.Requests,
	}
}

func (x *exchange) writes() *writes {
	return &writes{
		server: x.server, judge: x.judge, at: x.pages.at, searches: x.searches(), reads: x.reads(), shared: x.e.Shared,
		upsert: x.e.Upsert, limit: x.server.limits.Body, collect: x.collect,
	}
}

func (x *exchange) operations() *operations {
	return &operations{
		server: x.server, judge: x.judge, at: x.pages.at, pages: x.pages, writes: x.writes(), exports: x.exports(),
		list: x.e.Operations, expandScopes: x.e.ExpandScopes, shared: x.e.Shared, limit: x.server.limits.Answer,
	}
}

func (x *exchange) exports() *exports {
	return &exports{
		server: x.server, judge: x.judge, at: x.pages.at, sealing: x.e.Sealing, binding: x.bearer.Binding, r: x.client.r,
		parameters: x.e.Parameters, limit: x.server.limits.Answer,
	}
}

func (x *exchange) bundles() *bundles {
	return &bundles{server: x.server, judge: x.judge, at: x.pages.at, entries: x, limits: x.server.limits}
}

func answerRead(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.reads().Read(ctx, c, i)
}

func passesRead(x *exchange, i interaction.Interaction) bool {
	return x.judge.Rights().Whole(i.Type, smart.Read)
}

func answerInstanceHistory(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.reads().instanceHistory(ctx, c, i)
}

func answerHistory(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.reads().history(ctx, c, i)
}

func pageOfHistory(x *exchange, ctx context.Context, c call, i interaction.Interaction, at position, self string) (*answer, error) {
	return x.reads().historyPage(ctx, c, i, at, self)
}

func answerSearch(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.searches().search(ctx, c, i)
}

func pageOfSearch(x *exchange, ctx context.Context, c call, i interaction.Interaction, at position, self string) (*answer, error) {
	return x.searches().pageAt(ctx, c, i, at, self)
}

// passesAll reports whether a scope is about all resources of all types.
func passesAll(x *exchange, _ interaction.Interaction) bool {
	return x.judge.Rights().All()&smart.Search != 0
}

func passesSearch(x *exchange, i interaction.Interaction) bool {
	return passesAll(x, i) || x.judge.Rights().Whole(i.Type, smart.Search) && x.client.r.Method == http.MethodGet && x.searches().isPlain(i)
}

func passesCompartment(x *exchange, i interaction.Interaction) bool {
	return x.e.CompartmentSearch && passesSearch(x, i)
}

// writing answers a write.
func writing(write func(*writes, context.Context, call, interaction.Interaction) (*answer, error)) func(*exchange, context.Context, call, interaction.Interaction) (*answer, error) {
	return func(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
		return write(x.writes(), ctx, c, i)
	}
}

// passesWrite reports whether a write passes. Its body may hold conditional references, which are searches of any type.
func passesWrite(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return !mayAct(rights, i.Type) && rights.Whole(i.Type, i.Permission()|smart.Read) && rights.All()&smart.Search != 0 &&
		mayExtend(rights, x.client.r.Header, i)
}

func passesDelete(x *exchange, i interaction.Interaction) bool {
	rights := x.judge.Rights()
	return rights.Whole(i.Type, smart.Delete|smart.Read) && mayExtend(rights, x.client.r.Header, i)
}

func answerBundle(x *exchange, ctx context.Context, c call, _ interaction.Interaction) (*answer, error) {
	return x.bundles().bundle(ctx, c)
}

func answerOperation(x *exchange, ctx context.Context, c call, i interaction.Interaction) (*answer, error) {
	return x.operations().operation(ctx, c, i)
}

func passesOperation(x *exchange, i interaction.Interaction) bool {
	return x.operations().passes(x.client.r.Method, i)
}

func pageOfOperation(x *exchange, ctx context.Context, c call, i interaction.Interaction, at position, _ string) (*answer, error) {
	return x.operations().operationPage(ctx, c, i, at)
}

func answerCapabilities(x *exchange, ctx context.Context, c call, _ interaction.Interaction) (*answer, error) {
	m := x.e.Metadata
	if m == nil {
		m = &Metadata{Changes: CapabilityChanges{BaseURL: x.e.BaseURL}}
	}
	return m.answer(x.server, get(c.path, c.query), x.client.r.WithContext(ctx))
}

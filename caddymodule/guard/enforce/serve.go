package enforce

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/export"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

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

package enforce

import (
	"context"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// exchange is a client's request on its way: what asks the FHIR server, what judges, and the interactions over both.
type exchange struct {
	e       *Enforcer
	bearer  Bearer
	client  client
	server  *server.Server
	judge   *judge.Judge
	pages   paging.Pages
	collect write.Collector // of what writes come to in a transaction; nil: they are sent
}

// Serve answers a request as far as the bearer's rights go. Any error is a *guard.Error or the next handler's.
func (e *Enforcer) Serve(w http.ResponseWriter, r *http.Request, next message.NextHandler, b Bearer) error {
	x := newExchange(e, r, next, b)
	defer x.server.Share.Release()
	i, err := x.serve(w)
	if e.Decided != nil {
		e.Decided(r, b, x.decision(i, err))
	}
	return err
}

// newExchange makes an exchange and what it holds in one piece, since there is one for each request.
func newExchange(e *Enforcer, r *http.Request, next message.NextHandler, b Bearer) *exchange {
	whole := &struct {
		exchange
		server server.Server
		judge  judge.Judge
	}{}
	at := e.addresses()
	whole.server = server.New(e.Base, e.Limits, e.Memory, next, r)
	whole.judge = judge.New(&whole.server, at, e.Policies, r, b.Token, b.Rights)
	whole.exchange = exchange{
		e: e, bearer: b, server: &whole.server, judge: &whole.judge,
		client: client{r: r, base: e.Base, limit: whole.server.Limits.Body, memory: &whole.server},
		pages:  paging.Pages{Sealing: e.Sealing, Binding: b.Binding, At: at, AsSent: e.Policies.Rules != nil},
	}
	return &whole.exchange
}

func (e *Enforcer) addresses() message.Addresses {
	return message.Addresses{Path: e.Base, Base: e.BaseURL}
}

// serve answers the client's request, and tells which interaction it is.
func (x *exchange) serve(w http.ResponseWriter) (i interaction.Interaction, err error) {
	c, err := x.client.call()
	if err != nil {
		return i, err
	}
	for _, l := range sealedLinks {
		if sealed, ok := strings.CutPrefix(c.Path, l.path); ok {
			return l.serve(x, w, sealed)
		}
	}
	if i, err = c.Interaction(); err != nil {
		return i, err
	}
	x.tell(i)
	if x.passes(i) && x.judge.LeavesPassing(c, i) {
		return i, x.pass(w, c, i)
	}
	if x.isHopeless(i) {
		return i, message.Refused(x.judge.Rights(), i)
	}
	if c, i, err = x.client.withBody(c, i); err != nil {
		return i, err
	}
	if err := x.client.checkAnswerFormat(i); err != nil {
		return i, err
	}
	a, err := x.Answer(x.client.r.Context(), c, i)
	if err == nil && x.client.wantsContent(i, a) {
		a, err = content(a)
	}
	return i, x.finish(w, a, err)
}

// isHopeless reports whether no scope allows the interaction whatever its body says, which then is not read.
func (x *exchange) isHopeless(i interaction.Interaction) bool {
	if i.Type == "" || i.Type == smart.AnyType || x.e.Policies.Rules != nil {
		return false
	}
	for p := smart.Create; p <= smart.Search; p <<= 1 {
		if i.Permission()&p != 0 && !x.judge.Rights().Allow(i.Type, p) {
			return true
		}
	}
	return false
}

// finish writes an answer, or returns the error that took its place.
func (x *exchange) finish(w http.ResponseWriter, a *message.Answer, err error) error {
	if err != nil {
		return err
	}
	x.server.Share.ShrinkTo(int64(len(a.Body)))
	err = a.Write(w, x.client.r)
	if a.Buffer != nil {
		message.GiveBack(a.Buffer)
	}
	return err
}

// Answer answers a call, the client's or an entry of its batch, as far as the scopes go, and what the site's rules make
// of them.
func (x *exchange) Answer(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Answer, error) {
	return x.judge.Under(ctx, c, i, func() (*message.Answer, error) {
		if row := interactions[i.Kind]; row.answer != nil {
			return row.answer(ctx, x, c, i)
		}
		return nil, message.NotFound()
	})
}

// Passes reports whether a request goes to the next handler as it is, and its answer to the client.
func (x *exchange) passes(i interaction.Interaction) bool {
	row := interactions[i.Kind]
	return row.passes != nil && paging.RefusePaging(i.Parameters) == nil && row.passes(x, i)
}

// servePage answers a page link.
func (x *exchange) servePage(w http.ResponseWriter, sealed string) (i interaction.Interaction, err error) {
	if err := message.CheckFormat(x.client.r.Header, nil); err != nil {
		return i, err
	}
	c, i, at, err := x.pages.Opened(x.client.r, sealed)
	if err != nil {
		return i, err
	}
	if len(at.Places) == 1 && !at.IsStart() && x.passes(i) && x.judge.LeavesPassing(c, i) {
		return i, x.passPage(w, c, i, at.Places[0])
	}
	a, err := x.judge.Under(x.client.r.Context(), c, i, func() (*message.Answer, error) {
		if row := interactions[i.Kind]; row.page != nil {
			return row.page(x.client.r.Context(), x, c, i, at, x.pages.At.URL(paging.PagePath+sealed, ""))
		}
		return nil, message.NotFound()
	})
	return i, x.finish(w, a, err)
}

// The exchange answers the entries of a bundle, too: see [entries].

// Collect is Answer for a write that is not sent yet.
func (x *exchange) Collect(ctx context.Context, c message.Call, i interaction.Interaction, to write.Collector) (*message.Answer, error) {
	x.collect = to
	defer func() { x.collect = nil }()
	return x.Answer(ctx, c, i)
}

// CheckSearch refuses a search that would be refused, and asks for nothing that it finds.
func (x *exchange) CheckSearch(ctx context.Context, c message.Call, i interaction.Interaction) error {
	_, err := x.judge.Under(ctx, c, i, func() (*message.Answer, error) {
		err := x.searches().Check(ctx, c, i)
		return nil, err
	})
	return err
}

// PassesSingle reports whether an entry about one resource needs no judging.
func (x *exchange) PassesSingle(c message.Call, i interaction.Interaction) bool {
	return interactions[i.Kind].single && x.passes(i) && x.judge.LeavesPassing(c, i)
}

// Begins tells the next handler what is decided about an entry.
func (x *exchange) Begins(i interaction.Interaction) { x.tell(i) }

// Decided tells of the decision about an entry.
func (x *exchange) Decided(i interaction.Interaction, err error) {
	if x.e.Decided != nil {
		x.e.Decided(x.client.r, x.bearer, x.decision(i, err))
	}
}

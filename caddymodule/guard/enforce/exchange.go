package enforce

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/server"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/write"
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

// newExchange makes an exchange and what it holds in one piece, since there is one for each request.
func newExchange(e *Enforcer, r *http.Request, next message.NextHandler, b Bearer) *exchange {
	whole := &struct {
		exchange
		server server.Server
		judge  judge.Judge
	}{}
	at := message.Addresses{Path: e.Base, Base: e.BaseURL}
	whole.server = server.New(e.Base, e.Limits, e.Memory, next, r)
	whole.judge = judge.New(&whole.server, at, e.Policies, r, b.Token, b.Rights)
	whole.exchange = exchange{
		e: e, bearer: b, server: &whole.server, judge: &whole.judge,
		client: client{r: r, base: e.Base, limit: whole.server.Limits.Body, memory: &whole.server},
		pages:  paging.Pages{Sealing: e.Sealing, Binding: b.Binding, At: at, AsSent: e.Policies.Rules != nil},
	}
	return &whole.exchange
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

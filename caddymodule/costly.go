package caddymodule

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/terminology"
)

// costly has the costly requests of all fhir_expand handlers wait for their turn, one
// for each processor: they share the processors, whatever the configuration.
var costly = fairqueue.New(runtime.GOMAXPROCS(0))

// maxTurnWait is how long a costly request waits for its turn.
const maxTurnWait = 10 * time.Second

// busyRetryAfter is when a client is to ask again that did not get its turn, in seconds.
const busyRetryAfter = "5"

// takeTurn waits until a costly request may be worked on. Each network has half of the
// turns at most, and each client, however many networks it is used from.
func takeTurn(ctx context.Context) (leave func(), err error) { return takeTurnIn(costly, ctx) }

// takeTurnIn waits in a queue.
func takeTurnIn(queue *fairqueue.Queue, ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTurnWait)
	defer cancel()
	return queue.Enter(ctx, askerOf(ctx).holders()...)
}

// asker is who makes a request, as far as shares go.
type asker struct{ address, clientID string }

// askerKey is the key of the asker in the context of a request that may outlive the one
// that it was made of, whose own values may change then.
type askerKey struct{}

// askerOf returns who makes a request, by the request's context.
func askerOf(ctx context.Context) (a asker) {
	if known, ok := ctx.Value(askerKey{}).(asker); ok {
		return known
	}
	a.address = clientIP(ctx)
	if replacer, ok := ctx.Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		id, _ := replacer.Get("http.auth.user.client_id")
		a.clientID, _ = id.(string)
	}
	return a
}

// on makes a request one of the asker's.
func (a asker) on(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), askerKey{}, a))
}

// holders are whose shares the request takes of.
func (a asker) holders() []string {
	holders := []string{"network " + fairqueue.Network(a.address)}
	if a.clientID != "" {
		holders = append(holders, "client "+a.clientID)
	}
	return holders
}

// isBusy reports whether there was no turn for a request.
func isBusy(err error) bool { return errors.Is(err, terminology.ErrBusy) }

package expand

import (
	"context"
	"runtime"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// costly queues the costly requests of all fhir_expand handlers, of which one for each processor runs at a time.
var costly = fairqueue.New(runtime.GOMAXPROCS(0))

const maxTurnWait = 10 * time.Second

// takeTurn waits up to maxTurnWait until a costly request may run. A network gets at most half of the turns, and so
// does a client.
func takeTurn(ctx context.Context) (leave func(), err error) { return takeTurnIn(ctx, costly) }

// takeTurnIn is takeTurn for any queue.
func takeTurnIn(ctx context.Context, queue *fairqueue.Queue) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxTurnWait)
	defer cancel()
	return queue.Enter(ctx, turnHolders(ctx)...)
}

// turnHolders are the network and the client that a turn counts for.
func turnHolders(ctx context.Context) []string {
	d := detachedFrom(ctx)
	holders := []string{"network " + fairqueue.Network(d.address)}
	if d.clientID != "" {
		holders = append(holders, "client "+d.clientID)
	}
	return holders
}

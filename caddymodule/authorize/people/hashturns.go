package people

import (
	"context"
	"net/netip"
	"runtime"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// hashTurns bounds how many passwords are compared at once: anybody can send them, and each
// keeps a core busy for tens of milliseconds or more. Networks take turns, so that one does
// not delay another. Known browsers have a queue of their own, so that no flood, from however
// many networks, delays people at their usual computers.
type hashTurns struct {
	strangers, known *fairqueue.Queue
}

// holders are the networks that an attempt counts for: with IPv6 the /48 too, because one
// customer often has all of its 65,536 networks.
func holders(network string) []string {
	if prefix, err := netip.ParsePrefix(network); err == nil {
		return []string{netip.PrefixFrom(prefix.Addr(), 48).Masked().String(), network}
	}
	return []string{network}
}

func newHashTurns() hashTurns {
	cores := runtime.GOMAXPROCS(0)
	return hashTurns{strangers: fairqueue.New(cores), known: fairqueue.New(cores)}
}

// enter waits for a turn, and returns the function that ends it.
func (t hashTurns) enter(ctx context.Context, network string, known bool) (leave func(), err error) {
	queue := t.strangers
	if known {
		queue = t.known
	}
	ctx, cancel := context.WithTimeout(ctx, lockout.QueueTimeout)
	defer cancel()
	leave, err = queue.Enter(ctx, holders(network)...)
	return leave, lockout.QueueError(err)
}

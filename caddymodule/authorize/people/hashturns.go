package people

import (
	"context"
	"net/netip"
	"runtime"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// hashTurns bounds how many passwords are compared at once: each takes a core for tens
// of milliseconds at least, and anybody can send them. Networks take turns, so that
// many tries from one do not hold up another's; and browsers that are known have turns
// of their own, so that no flood of strangers, from however many networks, holds up
// people at the computers that they work at.
type hashTurns struct {
	strangers, known *fairqueue.Queue
}

// Attempt is where a password came from.
type Attempt struct {
	Network string // that takes turns with others
	Known   bool   // the browser is, to the account that is named
}

// holders are the networks that the try counts for: for IPv6 the /48 too, as one customer
// often has a whole one, with 65,536 networks in it.
func (a Attempt) holders() []string {
	if prefix, err := netip.ParsePrefix(a.Network); err == nil {
		return []string{netip.PrefixFrom(prefix.Addr(), 48).Masked().String(), a.Network}
	}
	return []string{a.Network}
}

func newHashTurns() hashTurns {
	cores := runtime.GOMAXPROCS(0)
	return hashTurns{strangers: fairqueue.New(cores), known: fairqueue.New(cores)}
}

// enter waits for a turn, and returns what ends it.
func (t hashTurns) enter(ctx context.Context, from Attempt) (leave func(), err error) {
	queue := t.strangers
	if from.Known {
		queue = t.known
	}
	ctx, cancel := context.WithTimeout(ctx, lockout.TurnTime)
	defer cancel()
	leave, err = queue.Enter(ctx, from.holders()...)
	return leave, lockout.Unserved(err)
}

package authorize

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// hashTime is how long a password waits at each of two places: until fewer tries for
// the same account are under way, and for its turn to be compared. After that, an answer
// is better than a browser that seems to hang.
const hashTime = 10 * time.Second

// hashTurns bounds how many passwords are compared at once: each takes a core for tens
// of milliseconds at least, and anybody can send them. Networks take turns, so that
// many tries from one do not hold up another's; and browsers that are known have turns
// of their own, so that no flood of strangers, from however many networks, holds up
// people at the computers that they work at.
type hashTurns struct {
	strangers, known *fairqueue.Queue
}

// attempt is where a password came from.
type attempt struct {
	network string
	known   bool // the browser is, to the account that is named
}

// holders are the networks that the try counts for: for IPv6 the /48 too, as one customer
// often has a whole one, with 65,536 networks in it.
func (a attempt) holders() []string {
	if prefix, err := netip.ParsePrefix(a.network); err == nil {
		return []string{netip.PrefixFrom(prefix.Addr(), 48).Masked().String(), a.network}
	}
	return []string{a.network}
}

func newHashTurns() hashTurns {
	cores := runtime.GOMAXPROCS(0)
	return hashTurns{strangers: fairqueue.New(cores), known: fairqueue.New(cores)}
}

// enter waits for a turn, and returns what ends it.
func (t hashTurns) enter(ctx context.Context, from attempt) (leave func(), err error) {
	queue := t.strangers
	if from.known {
		queue = t.known
	}
	ctx, cancel := context.WithTimeout(ctx, hashTime)
	defer cancel()
	leave, err = queue.Enter(ctx, from.holders()...)
	return leave, unserved(err)
}

// unserved makes a refusal of an error of waiting, unless the browser is gone.
func unserved(err error) error {
	if errors.Is(err, fairqueue.ErrFull) || errors.Is(err, context.DeadlineExceeded) {
		return busy(err)
	}
	return err
}

// busyTime is when who found no turn may try again.
const busyTime = 5 * time.Second

// busyError refuses a try because of all the others that are made.
type busyError struct{ error }

// busy refuses a try without a look at it, for a cause.
func busy(cause error) *oauth2.Error {
	return &oauth2.Error{
		Code: "temporarily_unavailable", Status: http.StatusServiceUnavailable,
		Description: "too many people are signing in right now", Err: busyError{cause},
	}
}

// waitOf is how long to wait after a refusal until the next try; 0 where there is
// nothing to wait for.
func waitOf(err error) time.Duration {
	var wait *waitError
	switch {
	case errors.As(err, &wait):
		return wait.wait
	case errors.As(err, new(busyError)):
		return busyTime
	}
	return 0
}

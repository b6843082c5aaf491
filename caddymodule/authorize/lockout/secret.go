package lockout

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// AttemptSecret counts an attempt that ended with err, and returns err, or a refusal after
// too many failures. They are counted by network, for this client or registration and for
// all, so that failures elsewhere stop nobody. Nor do those of the same network stop a
// secret that cannot be guessed. A success cancels its own client's failures, not the
// network's.
func (l *Limiter) AttemptSecret(r *http.Request, whose string, err error, guessable bool) error {
	if err == nil && !guessable {
		return nil
	}
	counters, failed := l.secretCounters(r.Context(), whose)
	if failed != nil {
		return failed
	}
	err = l.settle(r.Context(), counters, err)
	if wait, ok := errors.AsType[*WaitError](err); ok {
		err = &oauth2.Error{
			Code: "temporarily_unavailable", Status: http.StatusTooManyRequests,
			Description: "too many wrong secrets came from your network", Err: wait,
		}
		l.Trail.RecordRefusal(r, audit.Event{Kind: audit.Lockout, Err: err})
	}
	return err
}

func (l *Limiter) secretCounters(ctx context.Context, whose string) ([]counter, error) {
	network := fairqueue.Network(audit.ClientAddress(ctx))
	name := whose + "\x00" + network
	pair, err1 := l.newCounter(ctx, secret, name, name, l.Failures)
	address, err2 := l.newCounter(ctx, secret+"-address", network, "", l.AddressFailures)
	return []counter{pair, address}, errors.Join(err1, err2)
}

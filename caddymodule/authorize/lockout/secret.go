package lockout

import (
	"context"
	"errors"
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// Secret are the secrets of clients, and the tokens of registrations.
const Secret = "secret"

// TrySecret counts what a try of a secret came to, err, and has who failed too often
// wait: for this client or registration, and for any, always by network, so that wrong
// tries from elsewhere stop nobody. What nobody can guess passes even so, so that wrong
// tries from the same network do not either. As with people, a success takes back the
// failures of its own client there, and none of the network's.
func (l *Limiter) TrySecret(r *http.Request, whose string, err error, guessable bool) error {
	if err == nil && !guessable {
		return nil
	}
	counters, failed := l.secretCounters(r.Context(), whose)
	if failed != nil {
		return failed
	}
	err = l.Try(r.Context(), counters, err, func() error { return err })
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
	pair, err1 := l.newCounter(ctx, Secret, name, name, l.Failures)
	address, err2 := l.newCounter(ctx, Secret+"-address", network, "", l.AddressFailures)
	return []counter{pair, address}, errors.Join(err1, err2)
}

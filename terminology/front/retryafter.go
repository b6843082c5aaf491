package front

import (
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
	"github.com/caddy-fhir/caddy-fhir/terminology/remote"
)

// unavailable returns the error for a server that failed. The cache gives it to everybody who asks the same in the next
// moment, unless the server only refused this client. cause is what the server said, err what the client is told.
func unavailable(err, cause error) error {
	if errors.Is(cause, remote.ErrRefused) {
		return err
	}
	return &cache.Unavailable{RetryAfter: retryAfter(cause), Err: err}
}

// retryAfter returns how long to wait before asking again (RFC 9110 §10.2.3); 0: nobody said.
func retryAfter(err error) time.Duration {
	if errors.Is(err, terminology.ErrBusy) {
		return busyRetryAfter
	}
	if failed, ok := errors.AsType[*cache.Unavailable](err); ok { // it has what is left of the time
		return failed.RetryAfter
	}
	if failed, ok := errors.AsType[*remote.Error](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// busyRetryAfter is how long a client is to wait that did not get its turn.
const busyRetryAfter = 5 * time.Second

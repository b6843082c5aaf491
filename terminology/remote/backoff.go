package remote

import (
	"cmp"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Backoff keeps to the Retry-After of a server that has too much to do (RFC 9110 §10.2.3). It may be used by any number
// of goroutines. A nil Backoff keeps to nothing.
type Backoff struct{ until atomic.Int64 }

// Note notes what an answer with 503 says of when to ask again, and returns it. One with 429 counts too where all
// questions are asked in one name, as the limit is that of who asked (RFC 6585 §4).
func (b *Backoff) Note(status int, header http.Header, inOneName bool) time.Duration {
	if b == nil || status != http.StatusServiceUnavailable && (status != http.StatusTooManyRequests || !inOneName) {
		return 0
	}
	now := time.Now()
	wait := cache.RetryAfter(header, now)
	if wait > 0 {
		b.until.Store(now.Add(wait).UnixNano())
	}
	return wait
}

// Err returns an [*Error] where the server is not to be asked yet. The name is what it is called there, "the FHIR
// server" where it is empty.
func (b *Backoff) Err(name string) error {
	if b == nil {
		return nil
	}
	left := time.Duration(b.until.Load() - time.Now().UnixNano())
	if left <= 0 {
		return nil
	}
	e := fail(cmp.Or(name, nextName), fmt.Errorf("%w: it said to be asked again in %s", ErrFailed, left.Round(time.Second)))
	e.Status, e.RetryAfter = http.StatusServiceUnavailable, left
	return e
}

package cache

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// Unavailable is the error of a [Producer] whose origin failed. For [Options.FailureTTL] it answers all requests with the
// same key, to spare an origin in trouble.
type Unavailable struct {
	// RetryAfter is the origin's Retry-After (RFC 9110 §10.2.3). Default: 0, it did not say.
	RetryAfter time.Duration

	// Err is the cause. Required.
	Err error
}

// Error implements error.
func (e *Unavailable) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Unavailable) Unwrap() error { return e.Err }

// MaxRetryAfter is the longest Retry-After that counts, so that a mistaken header does not stop service.
const MaxRetryAfter = 5 * time.Minute

// RetryAfter returns the time to wait by a Retry-After header (RFC 9110 §10.2.3), at most [MaxRetryAfter]; 0 if there is
// none that can be read.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	var wait time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(0, wait), MaxRetryAfter)
}

// Seconds formats a duration for Retry-After: whole seconds, rounded up.
func Seconds(wait time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10)
}

const (
	maxFailures    = 1000     // that are remembered
	maxFailureBody = 16 << 10 // bytes
)

// failure is an origin's failure.
type failure struct {
	res   *result // nil if there is an error
	err   error
	said  bool // by Retry-After
	until time.Time
}

// failures are the latest failures of a generation.
type failures struct {
	byKey boundedcache.Cache[[sha256.Size]byte, failure]
}

// get returns the failure for a key while the origin is not to be asked again, with the Retry-After that is left.
func (f *failures) get(key Key, now time.Time) (res *result, failed bool, err error) {
	last, ok := f.byKey.Get(key.sum)
	if !ok || !now.Before(last.until) {
		return nil, false, nil
	}
	left := last.until.Sub(now)
	switch {
	case !last.said:
		return last.res, true, last.err
	case last.err != nil:
		return nil, true, &Unavailable{RetryAfter: left, Err: last.err}
	}
	answer := *last.res.answer
	answer.Header = answer.Header.Clone()
	answer.Header.Set("Retry-After", Seconds(left))
	return &result{answer: &answer}, true, nil
}

// note stores a failure, if others may get it.
func (f *failures) note(key Key, res *result, err error, ttl time.Duration) {
	now := time.Now()
	unavailable := (*Unavailable)(nil)
	if err != nil && !errors.As(err, &unavailable) || err == nil && (!res.isShared(key) || len(res.answer.Body) > maxFailureBody) {
		return
	}
	wait := retryAfterOf(res, err, now)
	if pause := cmp.Or(wait, ttl); pause > 0 {
		f.byKey.Put(key.sum, failure{res: res, err: err, said: wait > 0, until: now.Add(pause)}, 1)
	}
}

// retryAfterOf returns the time to wait after a failure by the origin's Retry-After; 0 if it did not say.
func retryAfterOf(res *result, err error, now time.Time) time.Duration {
	if unavailable := (*Unavailable)(nil); errors.As(err, &unavailable) {
		return min(unavailable.RetryAfter, MaxRetryAfter)
	}
	if err != nil {
		return 0
	}
	return RetryAfter(res.answer.Header, now)
}

package cache

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

// fetch is a prepared producer call. It is prepared before the call because the client's request may end first.
type fetch struct {
	target     *target
	request    *http.Request // request for the producer
	produce    Producer
	staleEntry *entry // stale entry to validate, or nil
	generation *generation
}

func (c *Cache) fetch(r *http.Request, call *Call, t *target, old *entry) (*fetch, error) {
	if t == nil {
		normalised, err := call.Scheme.target(r, call.Principal, call.Body)
		if err != nil {
			return nil, err
		}
		t = &normalised
	}
	return &fetch{t, call.request(r, t.representation, old), call.Produce, old, c.store.currentGeneration()}, nil
}

// collapse calls the producer once for concurrent requests with the same key, and returns a recent failure without calling the
// producer. If the response is neither storable nor a failure, only the first client gets it; the other clients call the
// producer themselves. The call continues if its client disconnects.
func (c *Cache) collapse(ctx context.Context, f *fetch) (res *result, collapsed bool, err error) {
	led := false
	done := f.generation.flights.DoChan(string(f.target.key.sum[:]), func() (any, error) {
		if e := c.store.peek(f.target.key); e != nil && e != f.staleEntry {
			return &result{response: &Response{Status: e.status}, entry: e, stored: true}, nil // another request stored it after the lookup
		}
		if res, failed, err := f.generation.failures.get(f.target.key, time.Now()); failed {
			return res, err
		}
		led = true
		res, err := c.runFetch(context.WithoutCancel(ctx), f)
		f.generation.failures.record(f.target.key, res, err, c.options.FailureTTL)
		return res, err
	})
	select {
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	case outcome := <-done:
		if outcome.Err != nil {
			return nil, !led, outcome.Err
		}
		res = outcome.Val.(*result)
	}
	if led || res.entry != nil || res.isShared(f.target.key) {
		return res, !led, nil
	}
	res, err = c.runFetch(ctx, f)
	return res, false, err
}

// refresh calls the producer in the background, unless a call is in progress or failed recently.
func (c *Cache) refresh(r *http.Request, call *Call, t *target, old *entry, now time.Time) {
	retry := old.retry.Load()
	pause := now.Add(c.options.Timeout).UnixNano()
	if now.UnixNano() < retry || !old.retry.CompareAndSwap(retry, pause) {
		return
	}
	f, err := c.fetch(r, call, t, old)
	if err != nil {
		return
	}
	ctx := context.WithoutCancel(f.request.Context())
	f.generation.flights.DoChan(string(f.target.key.sum[:]), func() (any, error) {
		res, err := c.runFetch(ctx, f)
		if err != nil || res.isFailure() {
			c.delayRetry(old, res, err, time.Now())
		} else {
			old.retry.Store(0) // matters only if an invalidation prevented the replacement of the entry
		}
		return res, err
	})
}

// delayRetry delays the next fetch for a stale entry by the same time as after a failure without a stale entry.
func (c *Cache) delayRetry(old *entry, res *result, err error, now time.Time) {
	pause := cmp.Or(retryAfterOf(res, err, now), max(0, c.options.FailureTTL))
	old.retry.Store(now.Add(pause).UnixNano())
}

var errIncompleteBody = errors.New("the response body does not match its Content-Length, or has a content coding")

var errUnexpected304 = errors.New("unexpected 304 Not Modified: the request was not conditional")

// runFetch calls the producer and stores its response if allowed.
func (c *Cache) runFetch(ctx context.Context, f *fetch) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	response, err := produce(f.produce, f.request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	res, now := &result{response: response}, time.Now()
	storable := true
	switch {
	case response.Status == http.StatusNotModified && f.staleEntry == nil:
		return nil, errUnexpected304
	case response.Status == http.StatusNotModified:
		res.validated = true
		res.entry, storable = c.options.revalidated(f.staleEntry, f.target, response, now)
	case !response.hasCompleteBody():
		return nil, errIncompleteBody
	case f.target.representation.matches(response.Header.Get("Content-Type")):
		if lifetimes, ok := c.options.freshnessOf(response, f.target.key, now); ok {
			res.entry = newEntry(f.target, response, lifetimes, now)
		}
	}
	storable = storable && res.entry != nil
	res.stored = storable && c.store.add(res.entry, f.generation, now)
	if f.staleEntry != nil && !storable && !res.isFailure() {
		c.store.discard(f.staleEntry) // the entry is outdated, and the new response may not be stored
	}
	return res, nil
}

// panicError reports that a producer panicked. The panic is recovered because other clients may be waiting for the response.
type panicError struct {
	Value any    // argument of panic
	Stack []byte // stack trace from [debug.Stack]; must not be sent to clients
}

func (e *panicError) Error() string {
	return fmt.Sprintf("panic while producing the response: %v", e.Value)
}

// Unwrap returns Value if it is an error, such as [http.ErrAbortHandler].
func (e *panicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errNoResponse = errors.New("the producer wrote no response")

// produce calls a producer and converts a panic into an error.
func produce(producer Producer, r *http.Request) (response *Response, err error) {
	defer func() {
		if value := recover(); value != nil {
			response, err = nil, &panicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if response, err = producer(r); err == nil && response == nil {
		err = errNoResponse
	}
	return response, err
}

// forwardedHeaders are sent to the producer although not every key contains them. Responses must not depend on them unless the
// caller sets [Scheme.VaryBy] accordingly.
var forwardedHeaders = []string{"Authorization", "Traceparent", "Tracestate"}

// request returns the producer's request: r reduced to the parts in the key and the headers in forwardedHeaders.
func (c *Call) request(r *http.Request, representation representation, old *entry) *http.Request {
	header := make(http.Header, len(forwardedHeaders)+len(c.Scheme.Headers)+4)
	for _, names := range [...][]string{forwardedHeaders, c.Scheme.Headers} {
		for _, name := range names {
			if values := r.Header[name]; len(values) > 0 {
				header[name] = slices.Clone(values)
			}
		}
	}
	if cookies := r.Header["Cookie"]; len(cookies) > 0 && c.Scheme.includesCredentials(c.Principal) {
		header["Cookie"] = slices.Clone(cookies)
	}
	representation.apply(header)
	if old != nil {
		setUnlessEmpty(header, "If-None-Match", old.origin.Get("Etag"))
		setUnlessEmpty(header, "If-Modified-Since", old.origin.Get("Last-Modified"))
	}
	ctx := r.Context()
	if c.Detach != nil {
		ctx = c.Detach(ctx)
	}
	clone := r.Clone(ctx)
	clone.Header = header
	clone.Method = methodClass(r.Method)
	clone.Body, clone.ContentLength, clone.TransferEncoding = http.NoBody, 0, nil
	if clone.Method == http.MethodPost {
		setUnlessEmpty(header, "Content-Type", r.Header.Get("Content-Type"))
		clone.ContentLength = int64(len(c.Body))
		clone.Body = io.NopCloser(bytes.NewReader(c.Body))
	}
	return clone
}

func setUnlessEmpty(header http.Header, name, value string) {
	if value != "" {
		header.Set(name, value)
	}
}

// isShared reports whether a result is a failure that all requests with the same key may get.
func (r *result) isShared(key Key) bool {
	if !r.isFailure() {
		return false
	}
	header := r.response.Header
	private := parseDirectives(header["Cache-Control"]).has("private") && !key.personal
	return !private && len(header["Set-Cookie"]) == 0 && keyCoversVary(header["Vary"], key)
}

// result is the result of a successful producer call.
type result struct {
	response  *Response
	entry     *entry // nil if the response may not be stored
	stored    bool
	validated bool // the producer confirmed the stale entry
}

// status returns the parameters fwd-status and stored of Cache-Status.
func (r *result) status() (status string) {
	if r.validated {
		status = "; fwd-status=304"
	} else {
		status = "; fwd-status=" + strconv.Itoa(r.response.Status)
	}
	if r.stored {
		status += "; stored"
	}
	return status
}

// isFailure reports whether the producer returned a response with a failure status.
func (r *result) isFailure() bool { return r.entry == nil && isFailure(r.response.Status) }

// UnavailableError is returned by a [Producer] if its origin has failed. To protect the origin, all requests with the same key
// get this error for [Options.FailureTTL].
type UnavailableError struct {
	// RetryAfter is the Retry-After of the origin (RFC 9110 §10.2.3). Default: 0, none was sent.
	RetryAfter time.Duration

	// Err is the cause of the failure. Required.
	Err error
}

// Error implements the error interface.
func (e *UnavailableError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UnavailableError) Unwrap() error { return e.Err }

// MaxRetryAfter is the maximum Retry-After that is honored, so that an incorrect header does not block the service.
const MaxRetryAfter = 5 * time.Minute

// ParseRetryAfter returns the wait specified by a Retry-After header (RFC 9110 §10.2.3), but at most [MaxRetryAfter]. It
// returns 0 if the header is missing or invalid.
func ParseRetryAfter(header http.Header, now time.Time) time.Duration {
	value := header.Get("Retry-After")
	var wait time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) {
		wait = time.Duration(seconds) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(0, wait), MaxRetryAfter)
}

// FormatRetryAfter formats a duration for Retry-After in seconds, rounded up.
func FormatRetryAfter(wait time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(wait.Seconds())), 10)
}

const (
	maxFailures    = 1000     // maximum number of stored failures
	maxFailureBody = 16 << 10 // maximum size of the body in a stored failure, in bytes
)

// failure is a recent failure of the origin.
type failure struct {
	res           *result // nil if err is set
	err           error
	hadRetryAfter bool // the origin sent Retry-After
	until         time.Time
}

// failures contains the recent failures in a generation.
type failures struct {
	byKey boundedcache.Cache[[sha256.Size]byte, failure]
}

// get returns the stored failure for a key, with the remaining Retry-After, or false if the origin may be retried.
func (f *failures) get(key Key, now time.Time) (res *result, failed bool, err error) {
	last, ok := f.byKey.Get(key.sum)
	if !ok || !now.Before(last.until) {
		return nil, false, nil
	}
	left := last.until.Sub(now)
	switch {
	case !last.hadRetryAfter:
		return last.res, true, last.err
	case last.err != nil:
		return nil, true, &UnavailableError{RetryAfter: left, Err: last.err}
	}
	response := *last.res.response
	response.Header = response.Header.Clone()
	response.Header.Set("Retry-After", FormatRetryAfter(left))
	return &result{response: &response}, true, nil
}

// record stores a failure if it may be shared by requests.
func (f *failures) record(key Key, res *result, err error, ttl time.Duration) {
	now := time.Now()
	unavailable := (*UnavailableError)(nil)
	if err != nil && !errors.As(err, &unavailable) || err == nil && (!res.isShared(key) || len(res.response.Body) > maxFailureBody) {
		return
	}
	wait := retryAfterOf(res, err, now)
	if pause := cmp.Or(wait, ttl); pause > 0 {
		f.byKey.Put(key.sum, failure{res: res, err: err, hadRetryAfter: wait > 0, until: now.Add(pause)}, 1)
	}
}

// retryAfterOf returns the wait that the origin requested after a failure, or 0 if it sent no Retry-After.
func retryAfterOf(res *result, err error, now time.Time) time.Duration {
	if unavailable := (*UnavailableError)(nil); errors.As(err, &unavailable) {
		return min(unavailable.RetryAfter, MaxRetryAfter)
	}
	if err != nil {
		return 0
	}
	return ParseRetryAfter(res.response.Header, now)
}

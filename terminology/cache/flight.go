package cache

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"slices"
	"time"
)

// fetch is a request to the producer. It is made in advance, since the client's own request may end before that.
type fetch struct {
	target     *target
	request    *http.Request // for the producer
	produce    Producer
	old        *entry // nil, or what may still be good
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

// collapse asks the producer once for all requests that want the same at the time, or shortly after it failed. An answer
// that may not be stored, and is no failure, is only for the first client; the others ask for themselves. The answer is
// finished even if its client has gone.
func (c *Cache) collapse(ctx context.Context, f *fetch) (res *result, collapsed bool, err error) {
	led := false
	done := f.generation.flights.DoChan(string(f.target.key.sum[:]), func() (any, error) {
		if e := c.store.peek(f.target.key); e != nil && e != f.old {
			return &result{answer: &Answer{Status: e.status}, entry: e, stored: true}, nil // stored since the look-up
		}
		if res, failed, err := f.generation.failures.get(f.target.key, time.Now()); failed {
			return res, err
		}
		led = true
		res, err := c.ask(context.WithoutCancel(ctx), f)
		f.generation.failures.note(f.target.key, res, err, c.options.FailureTTL)
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
	res, err = c.ask(ctx, f)
	return res, false, err
}

// refresh asks the producer in the background, unless that is under way or has just failed.
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
		res, err := c.ask(ctx, f)
		if err != nil || res.failed() {
			c.failed(old, res, err, time.Now())
		} else {
			old.retry.Store(0) // if it is still there, an invalidation came in between
		}
		return res, err
	})
}

// failed notes that a stale entry could not be replaced. Its origin is left alone as after a failure without one.
func (c *Cache) failed(old *entry, res *result, err error, now time.Time) {
	pause := cmp.Or(retryAfterOf(res, err, now), max(0, c.options.FailureTTL))
	old.retry.Store(now.Add(pause).UnixNano())
}

var errNotWhole = errors.New("the answer's body is not as long as it says, or is compressed")

var errUnasked = errors.New("the answer is 304 Not Modified, but there is nothing that it could be about")

// ask asks the producer and stores its answer.
func (c *Cache) ask(ctx context.Context, f *fetch) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	answer, err := produce(f.produce, f.request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	res, now := &result{answer: answer}, time.Now()
	keep := true
	switch {
	case answer.Status == http.StatusNotModified && f.old == nil:
		return nil, errUnasked
	case answer.Status == http.StatusNotModified:
		res.validated = true
		res.entry, keep = c.options.revalidated(f.old, f.target, answer, now)
	case !answer.isWhole():
		return nil, errNotWhole
	case f.target.representation.fits(answer.Header.Get("Content-Type")):
		if life, ok := c.options.freshnessOf(answer, f.target.key, now); ok {
			res.entry = newEntry(f.target, answer, life, now)
		}
	}
	keep = keep && res.entry != nil
	res.stored = keep && c.store.add(res.entry, f.generation, now)
	if f.old != nil && !keep && !res.failed() {
		c.store.discard(f.old) // it is outdated, and the new one may not be stored
	}
	return res, nil
}

// panicError is the error for a producer that panicked. The panic ends here, since others may be waiting.
type panicError struct {
	Value any    // of the panic
	Stack []byte // as [debug.Stack] has it; not for clients
}

// Error implements error.
func (e *panicError) Error() string {
	return fmt.Sprintf("making the answer panicked: %v", e.Value)
}

// Unwrap returns Value if that is an error, such as [http.ErrAbortHandler].
func (e *panicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errNoAnswer = errors.New("no answer was made")

// produce calls a producer, and turns a panic into an error.
func produce(producer Producer, r *http.Request) (answer *Answer, err error) {
	defer func() {
		if value := recover(); value != nil {
			answer, err = nil, &panicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if answer, err = producer(r); err == nil && answer == nil {
		err = errNoAnswer
	}
	return answer, err
}

// passed are the headers that a producer gets although not every key holds them. Answers do not depend on them, unless the
// caller says otherwise by [Scheme.VaryBy].
var passed = []string{"Authorization", "Traceparent", "Tracestate"}

// request returns the request for the producer, with only what the key holds.
func (c *Call) request(r *http.Request, representation representation, old *entry) *http.Request {
	header := make(http.Header, len(passed)+len(c.Scheme.Headers)+4)
	for _, names := range [...][]string{passed, c.Scheme.Headers} {
		for _, name := range names {
			if values := r.Header[name]; len(values) > 0 {
				header[name] = slices.Clone(values)
			}
		}
	}
	if cookies := r.Header["Cookie"]; len(cookies) > 0 && c.Scheme.holdsCredentials(c.Principal) {
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

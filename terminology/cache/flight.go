package cache

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// result is what came of asking the producer.
type result struct {
	answer    *Answer
	entry     *entry // nil if the answer may not be kept
	stored    bool
	confirmed bool // the producer said that the old answer is still good
}

// status returns parameters of Cache-Status.
func (r *result) status() (status string) {
	if r.confirmed {
		status = "; fwd-status=304"
	} else {
		status = "; fwd-status=" + strconv.Itoa(r.answer.Status)
	}
	if r.stored {
		status += "; stored"
	}
	return status
}

// inquiry is all that asking the producer takes. It is made before anybody is asked, since the client's request
// may be over before the answer is there.
type inquiry struct {
	question *question
	request  *http.Request // for the producer
	produce  Producer
	old      *entry // nil, or what may still be good
	era      *era
}

// inquiry returns what asking for a request takes.
func (c *Cache) inquiry(r *http.Request, call *Call, q *question, old *entry) (*inquiry, error) {
	if q == nil {
		normalised, err := call.Scheme.question(r, call.Principal, call.Body)
		if err != nil {
			return nil, err // cannot be: the same request was understood before
		}
		q = &normalised
	}
	return &inquiry{q, call.request(r, q.representation, old), call.Produce, old, c.store.currentEra()}, nil
}

// collapse asks the producer, once for all who ask the same at the time, or shortly after it failed. An answer that may
// not be kept and is no failure is only for the one who asked first; the others ask for themselves. Who goes away stops
// waiting, and nothing else: the answer is made to the end for those who are there, or come later.
func (c *Cache) collapse(ctx context.Context, i *inquiry) (res *result, collapsed bool, err error) {
	led := false
	done := i.era.flights.DoChan(string(i.question.key.sum[:]), func() (any, error) {
		if e := c.store.now(i.question.key); e != nil && e != i.old {
			return &result{answer: &Answer{Status: e.status}, entry: e, stored: true}, nil // it was made since we looked
		}
		if res, failed, err := i.era.failures.get(i.question.key, time.Now()); failed {
			return res, err
		}
		led = true
		res, err := c.ask(context.WithoutCancel(ctx), i)
		i.era.failures.note(i.question.key, res, err, c.options.FailureTTL)
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
	if led || res.entry != nil || res.isShared(i.question.key) {
		return res, !led, nil
	}
	res, err = c.ask(ctx, i)
	return res, false, err
}

// refresh asks the producer in the background, unless that is being done, or has just failed.
func (c *Cache) refresh(r *http.Request, call *Call, q *question, old *entry, now time.Time) {
	retry := old.retry.Load()
	pause := now.Add(c.options.Timeout).UnixNano()
	if now.UnixNano() < retry || !old.retry.CompareAndSwap(retry, pause) {
		return
	}
	i, err := c.inquiry(r, call, q, old)
	if err != nil {
		return
	}
	ctx := context.WithoutCancel(i.request.Context())
	i.era.flights.DoChan(string(i.question.key.sum[:]), func() (any, error) {
		res, err := c.ask(ctx, i)
		if err != nil || res.failed() {
			c.failed(old, time.Now())
		} else {
			old.retry.Store(0) // if it is still there, an invalidation came in between
		}
		return res, err
	})
}

// failed notes that a stale answer could not be replaced, so that a server in trouble is not asked all the time.
func (c *Cache) failed(old *entry, now time.Time) {
	c.failures.Add(1)
	old.retry.Store(now.Add(c.options.NegativeTTL).UnixNano())
}

// errNotWhole is the error for an answer that can be seen to be cut off, or that cannot be read without being
// decoded.
var errNotWhole = errors.New("the answer's body is not as long as it says, or is compressed")

// errUnasked is the error for an answer that what one has is still good, where one has nothing.
var errUnasked = errors.New("the answer is 304 Not Modified, but there is nothing that it could be about")

// ask asks the producer and keeps what it made.
func (c *Cache) ask(ctx context.Context, i *inquiry) (*result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	answer, err := produce(i.produce, i.request.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	res, now := &result{answer: answer}, time.Now()
	keep := true
	switch {
	case answer.Status == http.StatusNotModified && i.old == nil:
		return nil, errUnasked
	case answer.Status == http.StatusNotModified:
		c.confirmed.Add(1)
		res.confirmed = true
		res.entry, keep = c.options.revalidated(i.old, i.question, answer, now)
	case !answer.isWhole():
		return nil, errNotWhole
	case i.question.representation.fits(answer.Header.Get("Content-Type")):
		if f, ok := c.options.freshnessOf(answer, i.question.key, now); ok {
			res.entry = newEntry(i.question, answer, f, now)
		}
	}
	keep = keep && res.entry != nil
	res.stored = keep && c.store.add(res.entry, i.era, now)
	if i.old != nil && !keep && !res.failed() {
		c.store.discard(i.old) // what is true now may not be kept, so what was true before may not either
	}
	return res, nil
}

// failed reports whether the producer's answer is that there is none for now.
func (r *result) failed() bool { return r.entry == nil && isFailure(r.answer.Status) }

// PanicError is the error for a producer that panicked, which does not go further since others may be waiting.
type PanicError struct {
	// Value is what it panicked with.
	Value any

	// Stack is where, as [debug.Stack] has it: for logs, not for clients.
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string {
	return fmt.Sprintf("making the answer panicked: %v", e.Value)
}

// Unwrap returns what was panicked with, if that is an error, such as [http.ErrAbortHandler].
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errNoAnswer is the error for a producer that has neither an answer nor an error.
var errNoAnswer = errors.New("no answer was made")

// produce calls a producer.
func produce(producer Producer, r *http.Request) (answer *Answer, err error) {
	defer func() {
		if value := recover(); value != nil {
			answer, err = nil, &PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	if answer, err = producer(r); err == nil && answer == nil {
		err = errNoAnswer
	}
	return answer, err
}

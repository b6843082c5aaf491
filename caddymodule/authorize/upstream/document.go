package upstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// firstRetry and lastRetry bound the back-off while a document cannot be
	// had: 1 s, 2 s, 4 s, …, 1 min.
	firstRetry = time.Second
	lastRetry  = time.Minute

	// grace is how long past its freshness a document is still used while the
	// next is fetched.
	grace = time.Minute

	// maxStale is how long past its freshness a document is still used while
	// no newer one can be had: an outage of the provider shall not end ours,
	// but a key that was withdrawn must not live for ever.
	maxStale = 24 * time.Hour
)

// document is a document of the provider, fetched on first use and kept. One
// request is in flight at a time, and it outlives the caller that happened to
// need it, because the next will need it too.
type document[T any] struct {
	// fetch gets the document, and says how long it stays fresh.
	fetch func(context.Context) (T, time.Duration, error)

	// pause is the least time between two requests, once there is a version to
	// go on with.
	pause time.Duration

	// failed hears of a failure that no caller sees, because there is an older
	// version.
	failed func(error)

	flight   singleflight.Group
	latest   atomic.Pointer[version[T]]
	renewing atomic.Bool // by renewInBackground
}

// version is what is known of a document at one time. It is not changed.
type version[T any] struct {
	value    T
	usable   time.Time // until then; zero: there is no value
	fresh    time.Time // until then
	retry    time.Time // not fetched again before
	failures int       // in a row
	err      error     // of the last try
}

// get returns the document, a stale one where no fresh one can be had. Nobody
// waits for the next version of one that is in use, so that a provider that
// answers slowly delays none of those who come with its tokens all the time; and
// only the first to meet an outage waits for it.
func (d *document[T]) get(ctx context.Context) (T, error) {
	v := d.version()
	switch now := time.Now(); {
	case now.Before(v.fresh):
		return v.value, nil
	case now.Before(v.fresh.Add(grace)), v.err != nil && now.Before(v.usable):
		d.renewInBackground(ctx, v)
		return v.value, nil
	}
	v, err := d.renewed(ctx)
	if err == nil && !time.Now().Before(v.usable) {
		err = v.err
	}
	return v.value, err
}

// refetch is for who misses something in the document: it is fetched once more,
// unless that was done within the pause. The error is that of the last try,
// also where an older version is there.
func (d *document[T]) refetch(ctx context.Context) (T, error) {
	v, err := d.renewed(ctx)
	if err == nil {
		err = v.err
	}
	return v.value, err
}

func (d *document[T]) version() *version[T] {
	if v := d.latest.Load(); v != nil {
		return v
	}
	return new(version[T])
}

// renewed waits for renew. The error is the context's alone.
func (d *document[T]) renewed(ctx context.Context) (*version[T], error) {
	select {
	case result := <-d.renew(ctx):
		return result.Val.(*version[T]), nil
	case <-ctx.Done():
		return new(version[T]), fmt.Errorf("waiting for the provider: %w", context.Cause(ctx))
	}
}

// renew makes a new version, or says the latest again where it is too early for
// that.
func (d *document[T]) renew(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return d.flight.DoChan("", func() (any, error) {
		v := d.version()
		if time.Now().Before(v.retry) {
			return v, nil
		}
		v = d.next(ctx, v)
		d.latest.Store(v)
		return v, nil
	})
}

// renewInBackground renews without anybody waiting for it.
func (d *document[T]) renewInBackground(ctx context.Context, v *version[T]) {
	if time.Now().Before(v.retry) || !d.renewing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.renewing.Store(false)
		<-d.renew(ctx)
	}()
}

// next fetches the version after old.
func (d *document[T]) next(ctx context.Context, old *version[T]) *version[T] {
	value, fresh, err := d.fetch(ctx)
	now := time.Now()
	if err == nil {
		return &version[T]{
			value: value, fresh: now.Add(fresh), usable: now.Add(fresh + maxStale), retry: now.Add(d.pause),
		}
	}
	v := *old
	v.err = err
	v.failures++
	wait := lastRetry
	if old.failures < 6 {
		wait = min(firstRetry<<old.failures, lastRetry)
	}
	if now.Before(v.usable) {
		wait = max(wait, d.pause)
		d.failed(err)
	}
	v.retry = now.Add(wait)
	return &v
}

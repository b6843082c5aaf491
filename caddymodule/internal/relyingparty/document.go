package relyingparty

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4/json"
	"golang.org/x/sync/singleflight"
)

const (
	// minInterval is the minimum time between two requests for a document.
	minInterval = time.Minute

	// Limits of the back-off while requests fail: 1 s, 2 s, 4 s, … 1 min.
	firstRetry = time.Second
	lastRetry  = time.Minute

	// grace is how long a stale document is used while it is being refreshed.
	grace = time.Minute

	// maxStale is how long a stale document is used while requests fail: an outage of the
	// provider must not become an outage of the gateway, but a withdrawn key must stop working.
	maxStale = 24 * time.Hour
)

// document is fetched on first use and cached. At most one request is in flight. The request continues
// if its caller gives up, because the next caller needs the result too.
type document[T any] struct {
	fetch  func(context.Context) (T, time.Duration, error) // returns the document and its lifetime
	pause  time.Duration                                   // minimum time between two requests while a version exists
	failed func(error)                                     // receives errors that an older version hides from callers
	exact  bool                                            // a stale version is never used, and can always be renewed

	flight   singleflight.Group
	latest   atomic.Pointer[version[T]]
	renewing atomic.Bool // set by renewInBackground
}

// version is a fetched document, or a failed attempt. It is immutable.
type version[T any] struct {
	value    T
	usable   time.Time // end of use; zero without a value
	fresh    time.Time // end of freshness
	asked    time.Time // time of the request
	retry    time.Time // earliest time of the next request
	failures int       // consecutive
	err      error     // error of the latest attempt
}

// get returns the document, or a stale one if requests fail. It blocks only if no version exists, or for
// the first caller after grace.
func (d *document[T]) get(ctx context.Context) (T, error) {
	v := d.version()
	switch now := time.Now(); {
	case now.Before(v.fresh):
		return v.value, nil
	case !d.exact && now.Before(v.fresh.Add(grace)), v.err != nil && now.Before(v.usable):
		d.renewInBackground(ctx, v)
		return v.value, nil
	}
	v, err := d.renewed(ctx)
	if err == nil && !time.Now().Before(v.usable) {
		err = v.err
	}
	return v.value, err
}

// refetch fetches the document again because something is missing from it, unless the last request was
// within the pause. Unlike get, it returns the error of the latest attempt even if an older version
// exists.
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

// renewed waits for renew. It fails only with the error of ctx.
func (d *document[T]) renewed(ctx context.Context) (*version[T], error) {
	select {
	case result := <-d.renew(ctx):
		return result.Val.(*version[T]), nil
	case <-ctx.Done():
		return new(version[T]), fmt.Errorf("waiting for the provider: %w", context.Cause(ctx))
	}
}

// renew fetches a new version, or returns the latest if a new request is too early.
func (d *document[T]) renew(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return d.flight.DoChan("", func() (any, error) {
		v := d.version()
		if d.isEarly(v) {
			return v, nil
		}
		v = d.next(ctx, v)
		d.latest.Store(v)
		return v, nil
	})
}

// isEarly reports whether it is too early to replace a version.
func (d *document[T]) isEarly(v *version[T]) bool {
	now := time.Now()
	return now.Before(v.retry) && (!d.exact || v.err != nil || now.Before(v.fresh))
}

func (d *document[T]) renewInBackground(ctx context.Context, v *version[T]) {
	if time.Now().Before(v.retry) || !d.renewing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.renewing.Store(false)
		<-d.renew(ctx)
	}()
}

func (d *document[T]) next(ctx context.Context, old *version[T]) *version[T] {
	asked := time.Now()
	value, fresh, err := d.fetch(ctx)
	now := time.Now()
	if err == nil {
		v := &version[T]{value: value, asked: asked, fresh: now.Add(fresh), usable: now.Add(fresh), retry: now.Add(d.pause)}
		if !d.exact {
			v.usable = v.usable.Add(maxStale)
		}
		return v
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

// Discovery is an issuer's discovery document, for forwarding. It is fetched on first use and refreshed
// hourly. While requests fail, the old document is used for another day. It is safe for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery returns the Discovery of c.Issuer without I/O. It ignores c.URI.
func NewDiscovery(c KeySetConfig) (*Discovery, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, err
	}
	client := newClient(c.Transport, c.Timeout)
	return &Discovery{&document[[]byte]{
		pause: minInterval, failed: warner(c.Logger, c.Issuer),
		fetch: func(ctx context.Context) ([]byte, time.Duration, error) {
			body, err := discoveryText(ctx, client, c.Issuer)
			if err == nil {
				err = checkDiscovery(body, c.Issuer)
			}
			return body, metadataLifetime, err
		},
	}}, nil
}

// Text returns the document after checking its issuer and endpoints. The error is an [Error] if the
// failure has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery also checks the endpoints that are only forwarded.
func checkDiscovery(body []byte, issuer string) error {
	m, err := parseMetadata(body, issuer)
	if err != nil {
		return err
	}
	if err := m.checkSignIn(); err != nil {
		return err
	}
	var further struct {
		Registration string `json:"registration_endpoint"`
		Management   string `json:"management_endpoint"`
		Brands       string `json:"user_access_brand_bundle"`
	}
	if err := json.Unmarshal(body, &further); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return checkEndpoints(issuer,
		named{"revocation_endpoint", m.RevocationEndpoint},
		named{"introspection_endpoint", m.IntrospectionEndpoint},
		named{"registration_endpoint", further.Registration},
		named{"management_endpoint", further.Management},
		named{"user_access_brand_bundle", further.Brands},
	)
}

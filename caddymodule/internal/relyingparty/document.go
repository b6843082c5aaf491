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

	// Bounds of the back-off while fetching fails: 1 s, 2 s, 4 s, … 1 min.
	firstRetry = time.Second
	lastRetry  = time.Minute

	// grace is how long a stale document is used while the next one is fetched.
	grace = time.Minute

	// maxStale is how long a stale document is used while fetching fails: the provider's
	// outage must not become ours, but a withdrawn key must stop working.
	maxStale = 24 * time.Hour
)

// document is fetched on first use and cached. At most one request is in flight, and it
// continues if its caller gives up, because the next one needs the result too.
type document[T any] struct {
	fetch  func(context.Context) (T, time.Duration, error) // also returns how long it stays fresh
	pause  time.Duration                                   // between two requests while there is a version
	failed func(error)                                     // gets errors hidden from callers by an older version
	exact  bool                                            // a stale version is never used, and can always be renewed

	flight   singleflight.Group
	latest   atomic.Pointer[version[T]]
	renewing atomic.Bool // by renewInBackground
}

// version is immutable.
type version[T any] struct {
	value    T
	usable   time.Time // until then; zero if there is no value
	fresh    time.Time // until then
	asked    time.Time // when the value was requested
	retry    time.Time // not fetched again before then
	failures int       // in a row
	err      error     // of the last attempt
}

// get returns the document, or a stale one if fetching fails. It waits only if there is
// none yet, or if it is the first to find the document stale beyond grace.
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

// refetch fetches the document again, unless that was done within the pause, because
// something is missing from it. Unlike get, it returns the error of the last attempt even
// if there is an older version.
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

// renewed waits for renew. Its only error is that of the context.
func (d *document[T]) renewed(ctx context.Context) (*version[T], error) {
	select {
	case result := <-d.renew(ctx):
		return result.Val.(*version[T]), nil
	case <-ctx.Done():
		return new(version[T]), fmt.Errorf("waiting for the provider: %w", context.Cause(ctx))
	}
}

// renew fetches a new version, or returns the latest if it is too early for another.
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

// isEarly reports whether a version must not be replaced yet.
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

// Discovery is an issuer's discovery document, to be passed on. It is fetched on first use
// and refreshed hourly; while that fails, the old one is used for another day. It is safe
// for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery returns the Discovery of c.Issuer, without I/O. It ignores c.URI.
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

// Text returns the document once issuer and endpoints are checked. Its error is an [Error]
// if the failure has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery also checks the endpoints that are only passed on.
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

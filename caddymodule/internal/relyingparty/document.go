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
	// minRequestInterval is the minimum time between two requests for a document.
	minRequestInterval = time.Minute

	// Limits of the back-off while requests fail: 1 s, 2 s, 4 s, … 1 min.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute

	// staleGracePeriod is how long a stale document is used while it is being refreshed.
	staleGracePeriod = time.Minute

	// maxStale is how long a stale document is used while requests fail: an outage of the
	// provider must not become an outage of the gateway, but a withdrawn key must stop working.
	maxStale = 24 * time.Hour
)

// document is fetched on first use and cached. At most one request is in flight. The request continues
// if its caller gives up, because the next caller needs the result too.
type document[T any] struct {
	fetch     func(context.Context) (T, time.Duration, error) // returns the document and its lifetime
	interval  time.Duration                                   // minimum time between two requests while a version exists
	onFailure func(error)                                     // receives errors that an older version hides from callers
	strict    bool                                            // a stale version is never used, and can always be renewed

	flight     singleflight.Group
	latest     atomic.Pointer[documentVersion[T]]
	isRenewing atomic.Bool // set by renewInBackground
}

// documentVersion is a fetched document, or a failed attempt. It is immutable.
type documentVersion[T any] struct {
	value       T
	usableUntil time.Time // end of use; zero without a value
	freshUntil  time.Time // end of freshness
	requestedAt time.Time // time of the request
	retryAt     time.Time // earliest time of the next request
	failures    int       // consecutive
	err         error     // error of the latest attempt
}

// get returns the document, or a stale one if requests fail. It blocks only if no version exists, or for
// the first caller after staleGracePeriod.
func (d *document[T]) get(ctx context.Context) (T, error) {
	v := d.latestVersion()
	switch now := time.Now(); {
	case now.Before(v.freshUntil):
		return v.value, nil
	case !d.strict && now.Before(v.freshUntil.Add(staleGracePeriod)), v.err != nil && now.Before(v.usableUntil):
		d.renewInBackground(ctx, v)
		return v.value, nil
	}
	v, err := d.waitForRenewal(ctx)
	if err == nil && !time.Now().Before(v.usableUntil) {
		err = v.err
	}
	return v.value, err
}

// refetch fetches the document again because something is missing from it, unless the last request was
// within the interval. Unlike get, it returns the error of the latest attempt even if an older version
// exists.
func (d *document[T]) refetch(ctx context.Context) (T, error) {
	v, err := d.waitForRenewal(ctx)
	if err == nil {
		err = v.err
	}
	return v.value, err
}

func (d *document[T]) latestVersion() *documentVersion[T] {
	if v := d.latest.Load(); v != nil {
		return v
	}
	return new(documentVersion[T])
}

// waitForRenewal waits for renew. It fails only with the error of ctx.
func (d *document[T]) waitForRenewal(ctx context.Context) (*documentVersion[T], error) {
	select {
	case result := <-d.renew(ctx):
		return result.Val.(*documentVersion[T]), nil
	case <-ctx.Done():
		return new(documentVersion[T]), fmt.Errorf("waiting for the provider: %w", context.Cause(ctx))
	}
}

// renew fetches a new version, or returns the latest if a new request is too early.
func (d *document[T]) renew(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return d.flight.DoChan("", func() (any, error) {
		v := d.latestVersion()
		if d.isTooEarly(v) {
			return v, nil
		}
		v = d.fetchNext(ctx, v)
		d.latest.Store(v)
		return v, nil
	})
}

// isTooEarly reports whether it is too early to replace a version.
func (d *document[T]) isTooEarly(v *documentVersion[T]) bool {
	now := time.Now()
	return now.Before(v.retryAt) && (!d.strict || v.err != nil || now.Before(v.freshUntil))
}

func (d *document[T]) renewInBackground(ctx context.Context, v *documentVersion[T]) {
	if time.Now().Before(v.retryAt) || !d.isRenewing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer d.isRenewing.Store(false)
		<-d.renew(ctx)
	}()
}

func (d *document[T]) fetchNext(ctx context.Context, old *documentVersion[T]) *documentVersion[T] {
	requestedAt := time.Now()
	value, lifetime, err := d.fetch(ctx)
	now := time.Now()
	if err == nil {
		v := &documentVersion[T]{value: value, requestedAt: requestedAt, freshUntil: now.Add(lifetime), usableUntil: now.Add(lifetime), retryAt: now.Add(d.interval)}
		if !d.strict {
			v.usableUntil = v.usableUntil.Add(maxStale)
		}
		return v
	}
	v := *old
	v.err = err
	v.failures++
	delay := maxRetryDelay
	if old.failures < 6 {
		delay = min(minRetryDelay<<old.failures, maxRetryDelay)
	}
	if now.Before(v.usableUntil) {
		delay = max(delay, d.interval)
		d.onFailure(err)
	}
	v.retryAt = now.Add(delay)
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
		interval: minRequestInterval, onFailure: newFailureLogger(c.Logger, c.Issuer),
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
	var optional struct {
		Registration string `json:"registration_endpoint"`
		Management   string `json:"management_endpoint"`
		Brands       string `json:"user_access_brand_bundle"`
	}
	if err := json.Unmarshal(body, &optional); err != nil {
		return fmt.Errorf("%w: %w", ErrMetadata, err)
	}
	return checkEndpoints(issuer,
		namedEndpoint{"revocation_endpoint", m.RevocationEndpoint},
		namedEndpoint{"introspection_endpoint", m.IntrospectionEndpoint},
		namedEndpoint{"registration_endpoint", optional.Registration},
		namedEndpoint{"management_endpoint", optional.Management},
		namedEndpoint{"user_access_brand_bundle", optional.Brands},
	)
}

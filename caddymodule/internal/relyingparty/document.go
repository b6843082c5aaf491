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

	// Limits of the delay between failed requests: 1 s, 2 s, 4 s, … 1 min.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute

	// staleGracePeriod is how long a stale document is used while it is being refreshed.
	staleGracePeriod = time.Minute

	// maxStale is how long a stale document is used while requests fail. An outage of the provider must not cause an outage of
	// the gateway, but a withdrawn key must eventually be rejected.
	maxStale = 24 * time.Hour
)

// document is fetched on first use and cached. At most one request is in flight. If the caller gives up, the request continues,
// because the next caller needs the result too.
type document[T any] struct {
	fetch     func(context.Context) (T, time.Duration, error) // returns the document and how long it is fresh
	interval  time.Duration                                   // minimum time between two requests if there is a version
	onFailure func(error)                                     // called with errors that callers do not see because a previous version exists
	strict    bool                                            // whether stale versions are never used and can always be renewed

	flight     singleflight.Group
	latest     atomic.Pointer[documentVersion[T]]
	isRenewing atomic.Bool // set while renewInBackground runs
}

// documentVersion is a fetched document or a failed attempt. It is immutable.
type documentVersion[T any] struct {
	value       T
	usableUntil time.Time // time until which the value may be used; zero if there is no value
	freshUntil  time.Time // time until which the value is fresh
	requestedAt time.Time // time of the request
	retryAt     time.Time // earliest time for the next request
	failures    int       // number of consecutive failures
	err         error     // error of the latest attempt
}

// get returns the document, which may be stale if requests fail. It blocks only if there is no version and, after
// staleGracePeriod, for the first caller.
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

// refetch fetches the document again because the caller needs something that it does not contain, unless the last request was
// within the interval. Unlike get, it returns the error of the latest attempt even if a previous version exists.
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

// waitForRenewal waits for renew. The only error is that of ctx.
func (d *document[T]) waitForRenewal(ctx context.Context) (*documentVersion[T], error) {
	select {
	case result := <-d.renew(ctx):
		return result.Val.(*documentVersion[T]), nil
	case <-ctx.Done():
		return new(documentVersion[T]), fmt.Errorf("waiting for the provider: %w", context.Cause(ctx))
	}
}

// renew fetches a new version, or returns the latest version if it is too early for a new request.
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

// Discovery is an issuer's discovery document, which is forwarded to clients. It is fetched on first use and refreshed hourly.
// While requests fail, the previous document is used for one more day. Discovery is safe for concurrent use.
type Discovery struct {
	text *document[[]byte]
}

// NewDiscovery returns the Discovery for c.Issuer without performing I/O. It ignores c.URI.
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

// Text checks the document's issuer and endpoints and returns the document. The error is an [Error] if the failure has a kind.
func (d *Discovery) Text(ctx context.Context) ([]byte, error) { return d.text.get(ctx) }

// checkDiscovery checks a discovery document, including endpoints that are only forwarded.
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

package cache

import (
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// cacheName is how the cache calls itself in Cache-Status (RFC 9211 §2).
const cacheName = "caddy-fhir"

// Options are those of a [Cache]. The zero value of a field means its default.
type Options struct {
	// MaxSize is how much is kept, in bytes: bodies, their compressed forms, headers, keys, and what the
	// structures take. Default: 64 MiB.
	MaxSize int64

	// TTL is for how long an answer is fresh that says nothing of its lifetime, and at most for how long
	// one is that does. Default: 1 hour.
	TTL time.Duration

	// NegativeTTL is the same for answers that there is nothing (404, 410, 422). They are never used
	// stale. It is also how long a stale answer is used before its origin, having failed, is asked again.
	// Default: 10 seconds.
	NegativeTTL time.Duration

	// FailureTTL is for how long a failure of the origin (an answer with a status of 5xx or 429, an
	// [Unavailable]) is given to all who ask the same, before the origin is asked again. Where the failure names a
	// longer time (Retry-After), that counts, up to [MaxRetryAfter]. Default: 1 second. Negative: a failure without
	// Retry-After is shared only by those who wait for the same answer.
	FailureTTL time.Duration

	// StaleWhileRevalidate is for how long after that an answer is still given at once, while a new one is
	// made in the background (RFC 5861 §3). What the answer says itself counts if it is less. Default: 0, a
	// new answer is waited for.
	StaleWhileRevalidate time.Duration

	// StaleIfError is for how long after that an answer is still given where no new one can be made (RFC
	// 5861 §4). What the answer says itself counts if it is less. Default: 0, the failure is given.
	StaleIfError time.Duration

	// MaxAge is for how long clients may use an answer without asking again; no invalidation reaches them
	// in that time. Default: 0, they ask each time, and are told mostly that what they have is still good.
	MaxAge time.Duration

	// Timeout is how long a producer may take before its context ends. Default: 30 seconds.
	Timeout time.Duration
}

// Defaults of [Options].
const (
	defaultMaxSize     = 64 << 20
	defaultTTL         = time.Hour
	defaultNegativeTTL = 10 * time.Second
	defaultFailureTTL  = time.Second
	defaultTimeout     = 30 * time.Second
)

// withDefaults fills in the defaults.
func (o Options) withDefaults() *Options {
	if o.MaxSize <= 0 {
		o.MaxSize = defaultMaxSize
	}
	if o.TTL <= 0 {
		o.TTL = defaultTTL
	}
	if o.NegativeTTL <= 0 {
		o.NegativeTTL = defaultNegativeTTL
	}
	if o.FailureTTL == 0 {
		o.FailureTTL = defaultFailureTTL
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return &o
}

// Cache keeps answers. It is safe for concurrent use, has no goroutine of its own but while an answer is being
// made, and needs no end. Use [New].
type Cache struct {
	options *Options
	store   *store

	hits, stale, misses, collapsed, bypassed, notModified, confirmed, failures atomic.Uint64
}

// New returns an empty cache.
func New(options Options) *Cache {
	c := &Cache{options: options.withDefaults()}
	c.store = newStore(c.options.MaxSize)
	return c
}

// ErrNotKept is the error for a request which only wants what is kept (only-if-cached), where nothing is that it may be
// given. Its status is 504 (RFC 9111 §5.2.1.7).
var ErrNotKept = errors.New("no answer is kept, and the request forbids to ask for one")

// Serve answers a request: with what is kept, or else with what call.Produce makes, which then is kept if it may
// be. It writes the answer, or else nothing and returns the producer's error.
func (c *Cache) Serve(w http.ResponseWriter, r *http.Request, call *Call) error {
	wish := wishOf(r.Header)
	if wish.bypass || !isCacheable(r.Method) {
		return c.bypass(w, r, call, "bypass")
	}
	e, q, err := c.lookup(r, call)
	if err != nil {
		return c.bypass(w, r, call, "bypass; detail=request")
	}
	now := time.Now()
	var age time.Duration
	if e != nil {
		age = e.age(now)
	}
	switch {
	case wish.onlyIfCached && (e == nil || age >= max(e.fresh, e.revalidate) || !wish.allows(age)):
		return ErrNotKept
	case e == nil:
		return c.forward(w, r, call, q, nil, "miss")
	case !wish.allows(age):
		return c.forward(w, r, call, q, e, "request")
	case age < e.fresh:
		c.hits.Add(1)
		return c.write(w, r, call, e, now, nil)
	case age < e.revalidate, age < e.unreachable && now.UnixNano() < e.retry.Load():
		c.stale.Add(1)
		c.refresh(r, call, q, e, now)
		return c.write(w, r, call, e, now, nil)
	}
	return c.forward(w, r, call, q, e, "stale")
}

// lookup finds the entry for a request: by the request as it is, or else by its key. The question is nil in the
// first case.
func (c *Cache) lookup(r *http.Request, call *Call) (*entry, *question, error) {
	var buffer [768]byte
	raw := call.Scheme.appendRaw(buffer[:0], r, call.Principal)
	if raw != nil {
		if e := c.store.find(raw); e != nil {
			return e, nil, nil
		}
	}
	q, err := call.Scheme.question(r, call.Principal, call.Body)
	if err != nil {
		return nil, nil, err
	}
	return c.store.get(q.key, raw), &q, nil
}

// forward answers a request with what the producer makes, or if that fails with what is kept, if it may be used
// then. why is the parameter fwd of Cache-Status.
func (c *Cache) forward(w http.ResponseWriter, r *http.Request, call *Call, q *question, old *entry, why string) error {
	c.misses.Add(1)
	i, err := c.inquiry(r, call, q, old)
	if err != nil {
		return err
	}
	res, collapsed, err := c.collapse(i.request.Context(), i)
	now := time.Now()
	if (err != nil || res.failed()) && r.Context().Err() == nil && old != nil && old.age(now) < old.unreachable {
		c.stale.Add(1)
		c.failed(old, now)
		ttl := strconv.FormatInt(old.ttl(old.age(now)), 10)
		return c.write(w, r, call, old, now, []string{cacheName + "; fwd=" + why + "; ttl=" + ttl + "; detail=stale-if-error"})
	}
	if err != nil {
		return err
	}
	status := cacheName + "; fwd=" + why + res.status()
	if collapsed {
		c.collapsed.Add(1)
		status += "; collapsed"
	}
	if res.entry == nil {
		return relay(w, r, call, res.answer, status)
	}
	return c.write(w, r, call, res.entry, now, []string{status})
}

// bypass answers a request past the cache. What the producer is asked is the same as else, if the request can be
// understood; HEAD is asked as GET, since the header tells of a body that there would be.
func (c *Cache) bypass(w http.ResponseWriter, r *http.Request, call *Call, why string) error {
	c.bypassed.Add(1)
	asked := r
	if q, err := call.Scheme.question(r, call.Principal, call.Body); err == nil && isCacheable(r.Method) {
		asked = call.request(r, q.representation, nil)
	} else if r.Method == http.MethodHead {
		asked = r.Clone(r.Context())
		asked.Method = http.MethodGet
	}
	answer, err := produce(call.Produce, asked)
	if err != nil {
		return err
	}
	return relay(w, r, call, answer, cacheName+"; fwd="+why)
}

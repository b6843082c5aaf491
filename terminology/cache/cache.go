package cache

import (
	"net/http"
	"strconv"
	"time"
)

func (o Options) withDefaults() *Options {
	if o.MaxSize <= 0 {
		o.MaxSize = 64 << 20
	}
	if o.TTL <= 0 {
		o.TTL = time.Hour
	}
	if o.NegativeTTL <= 0 {
		o.NegativeTTL = 10 * time.Second
	}
	if o.FailureTTL == 0 {
		o.FailureTTL = time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	return &o
}

// New returns an empty cache.
func New(options Options) *Cache {
	c := &Cache{options: options.withDefaults()}
	c.store = newStore(c.options.MaxSize)
	return c
}

// ErrNotKept is returned for a request with only-if-cached if there is no stored answer for it: status 504 (RFC 9111
// §5.2.1.7).
var ErrNotKept error = notKept{}

type notKept struct{}

// Error implements error.
func (notKept) Error() string { return "no answer is kept, and the request forbids to ask for one" }

// LoggedElsewhere keeps the error out of the log of failures: only-if-cached asks for it.
func (notKept) LoggedElsewhere() {}

// Serve answers a request with a stored answer, or with what call.Produce makes, which it then stores if allowed. If it
// returns the producer's error, it has written nothing.
func (c *Cache) Serve(w http.ResponseWriter, r *http.Request, call *Call) error {
	asked := clientDirectivesOf(r.Header)
	if asked.noStore || !isCacheable(r.Method) {
		return c.bypass(w, r, call, "bypass")
	}
	e, t, err := c.lookup(r, call)
	if err != nil {
		return c.bypass(w, r, call, "bypass; detail=request")
	}
	now := time.Now()
	var age time.Duration
	if e != nil {
		age = e.age(now)
	}
	switch {
	case asked.onlyIfCached && (e == nil || age >= max(e.fresh, e.staleWhileRevalidate) || !asked.allows(age)):
		return ErrNotKept
	case e == nil:
		return c.forward(w, r, call, t, nil, "miss")
	case !asked.allows(age):
		return c.forward(w, r, call, t, e, "request")
	case age < e.fresh:
		c.hits.Add(1)
		return c.write(w, r, call, e, now, nil)
	case age < e.staleWhileRevalidate, age < e.staleIfError && now.UnixNano() < e.retry.Load():
		c.stale.Add(1)
		c.refresh(r, call, t, e, now)
		return c.write(w, r, call, e, now, nil)
	}
	return c.forward(w, r, call, t, e, "stale")
}

// lookup finds the entry by the request as it was sent, or else by its key. The target is nil in the first case.
func (c *Cache) lookup(r *http.Request, call *Call) (*entry, *target, error) {
	var buffer [768]byte
	raw := call.Scheme.appendRaw(buffer[:0], r, call.Principal)
	if raw != nil {
		if e := c.store.find(raw); e != nil {
			return e, nil, nil
		}
	}
	t, err := call.Scheme.target(r, call.Principal, call.Body)
	if err != nil {
		return nil, nil, err
	}
	return c.store.get(t.key, raw), &t, nil
}

// forward answers with what the producer makes or, if that fails, with a stale answer if allowed. why is the parameter fwd
// of Cache-Status.
func (c *Cache) forward(w http.ResponseWriter, r *http.Request, call *Call, t *target, old *entry, why string) error {
	c.misses.Add(1)
	f, err := c.fetch(r, call, t, old)
	if err != nil {
		return err
	}
	res, collapsed, err := c.collapse(f.request.Context(), f)
	now := time.Now()
	if (err != nil || res.failed()) && r.Context().Err() == nil && old != nil && old.age(now) < old.staleIfError {
		c.stale.Add(1)
		c.failed(old, res, err, now)
		ttl := strconv.FormatInt(old.ttl(old.age(now)), 10)
		return c.write(w, r, call, old, now, []string{cacheName + "; fwd=" + why + "; ttl=" + ttl + "; detail=stale-if-error"})
	}
	if err != nil {
		return err
	}
	status := cacheName + "; fwd=" + why + res.status()
	if collapsed {
		status += "; collapsed"
	}
	if res.entry == nil {
		return relay(w, r, call, res.answer, status)
	}
	return c.write(w, r, call, res.entry, now, []string{status})
}

// bypass answers past the cache. The producer still gets the normalised request if the request can be understood, and a
// GET for a HEAD.
func (c *Cache) bypass(w http.ResponseWriter, r *http.Request, call *Call, why string) error {
	asked := r
	if t, err := call.Scheme.target(r, call.Principal, call.Body); err == nil && isCacheable(r.Method) {
		asked = call.request(r, t.representation, nil)
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

// Stats counts requests and evictions since the cache was made, and what it holds.
type Stats struct {
	// Hits, Stale and Misses are requests answered by a fresh answer, by a stale one, and by the producer. A stale answer
	// after a failure counts in Misses too.
	Hits, Stale, Misses uint64

	// Evictions are answers removed to make room.
	Evictions uint64

	// Entries and Bytes are what is held.
	Entries, Bytes int64
}

// Stats returns the numbers.
func (c *Cache) Stats() Stats {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return Stats{
		Hits: c.hits.Load(), Stale: c.stale.Load(), Misses: c.misses.Load(), Evictions: c.store.evicted,
		Entries: int64(len(c.store.entries)), Bytes: c.store.bytes(),
	}
}

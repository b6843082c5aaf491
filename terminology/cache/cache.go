package cache

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// cacheName identifies the cache in Cache-Status (RFC 9211 §2).
const cacheName = "caddy-fhir"

// Options configures a [Cache]. Zero values mean defaults.
type Options struct {
	// MaxSize is the maximum size of the cache in bytes. It includes bodies, their compressed forms, headers, keys and data
	// structures. Default: 64 MiB.
	MaxSize int64

	// TTL is the lifetime of responses that specify none, and the maximum lifetime. Default: 1 hour.
	TTL time.Duration

	// NegativeTTL is like TTL, but for negative responses (404, 410, 422), which are never served stale. Default: 10 seconds.
	NegativeTTL time.Duration

	// FailureTTL is how long a failure of the origin (status 5xx or 429, or [UnavailableError]) is returned for all requests
	// with the same key, unless a stale response is available. Retry-After takes precedence, up to [MaxRetryAfter]. If
	// FailureTTL is negative, a failure without Retry-After is shared only by concurrent requests. Default: 1 second.
	FailureTTL time.Duration

	// StaleWhileRevalidate is how long a stale response is served while a new one is fetched in the background (RFC 5861 §3).
	// Responses can specify a shorter time. Default: 0, clients wait for the new response.
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long a stale response is served if fetching a new one fails (RFC 5861 §4). Responses can specify a
	// shorter time. Default: 0, clients get the failure.
	StaleIfError time.Duration

	// Timeout is the maximum duration of a producer call. Default: 30 seconds.
	Timeout time.Duration
}

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

// Cache stores responses. It is safe for concurrent use. It runs goroutines only while fetching responses, so it does not need
// to be closed. Create it with [New].
type Cache struct {
	options *Options
	store   *store

	hits, stale, misses atomic.Uint64
}

// New returns an empty cache with the given options.
func New(options Options) *Cache {
	c := &Cache{options: options.withDefaults()}
	c.store = newStore(c.options.MaxSize)
	return c
}

// ErrNotCached is returned for a request with only-if-cached if no response is stored: status 504 (RFC 9111 §5.2.1.7).
var ErrNotCached error = notCachedError{}

type notCachedError struct{}

func (notCachedError) Error() string {
	return "no stored response, and the request has Cache-Control: only-if-cached"
}

// LoggedElsewhere excludes the error from the failure log: the client requested it with only-if-cached.
func (notCachedError) LoggedElsewhere() {}

// Serve writes the stored response. If no response is stored, it calls call.Produce, writes its response, and stores it if
// allowed. If the producer returns an error, Serve returns it without having written anything.
func (c *Cache) Serve(w http.ResponseWriter, r *http.Request, call *Call) error {
	directives := parseClientDirectives(r.Header)
	if directives.noStore || !isCacheable(r.Method) {
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
	case directives.onlyIfCached && (e == nil || age >= max(e.fresh, e.staleWhileRevalidate) || !directives.allows(age)):
		return ErrNotCached
	case e == nil:
		return c.forward(w, r, call, t, nil, "miss")
	case !directives.allows(age):
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

// clientDirectives contains the Cache-Control directives of a request (RFC 9111 §5.2.1).
type clientDirectives struct {
	noStore      bool
	noCache      bool
	onlyIfCached bool
	maxAge       time.Duration // negative if the request has no max-age
}

func parseClientDirectives(header http.Header) clientDirectives {
	values := header["Cache-Control"]
	if len(values) == 0 {
		return clientDirectives{maxAge: -1}
	}
	d := parseDirectives(values)
	w := clientDirectives{noStore: d.has("no-store"), noCache: d.has("no-cache"), onlyIfCached: d.has("only-if-cached"), maxAge: -1}
	if age, ok := d.seconds("max-age"); ok {
		w.maxAge = age
	}
	return w
}

// allows reports whether the directives permit a response of the given age.
func (w *clientDirectives) allows(age time.Duration) bool {
	return !w.noCache && (w.maxAge < 0 || age <= w.maxAge)
}

// lookup finds an entry by the raw request or, failing that, by its key. The target is nil if the raw request matched an alias.
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

// forward writes a response from the producer. If the producer fails, it writes the stale response if that is allowed. why is
// the parameter fwd of Cache-Status.
func (c *Cache) forward(w http.ResponseWriter, r *http.Request, call *Call, t *target, old *entry, why string) error {
	c.misses.Add(1)
	f, err := c.fetch(r, call, t, old)
	if err != nil {
		return err
	}
	res, collapsed, err := c.collapse(f.request.Context(), f)
	now := time.Now()
	if (err != nil || res.isFailure()) && r.Context().Err() == nil && old != nil && old.age(now) < old.staleIfError {
		c.stale.Add(1)
		c.delayRetry(old, res, err, now)
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
		return relay(w, r, call, res.response, status)
	}
	return c.write(w, r, call, res.entry, now, []string{status})
}

// bypass writes a response from the producer without using the cache. If the request can be parsed, the producer still gets a
// normalized request, with GET instead of HEAD.
func (c *Cache) bypass(w http.ResponseWriter, r *http.Request, call *Call, why string) error {
	directives := r
	if t, err := call.Scheme.target(r, call.Principal, call.Body); err == nil && isCacheable(r.Method) {
		directives = call.request(r, t.representation, nil)
	} else if r.Method == http.MethodHead {
		directives = r.Clone(r.Context())
		directives.Method = http.MethodGet
	}
	response, err := produce(call.Produce, directives)
	if err != nil {
		return err
	}
	return relay(w, r, call, response, cacheName+"; fwd="+why)
}

// Stats contains counters since the creation of the cache, and the current size of the cache.
type Stats struct {
	// Hits, Stale and Misses count requests served with a fresh response, with a stale response, and by the producer. A stale
	// response served after a failure also counts as a miss.
	Hits, Stale, Misses uint64

	// Evictions counts the responses removed because of MaxSize.
	Evictions uint64

	// Entries and Bytes are the number and total size of stored responses.
	Entries, Bytes int64
}

// Stats returns the current statistics.
func (c *Cache) Stats() Stats {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return Stats{
		Hits: c.hits.Load(), Stale: c.stale.Load(), Misses: c.misses.Load(), Evictions: c.store.evicted,
		Entries: int64(len(c.store.entries)), Bytes: c.store.bytes(),
	}
}

// Header values shared by many responses; they must not be modified.
var (
	varies        = []string{"Accept, Accept-Encoding, Accept-Language"}
	variesByUser  = []string{"Accept, Accept-Encoding, Accept-Language, Authorization"}
	cookie        = []string{"Cookie"}
	publicNoCache = []string{"public, no-cache"}
	// Private even if all users get the same response: a shared cache would bypass the guard.
	privateNoCache = []string{"private, no-cache"}
	privateNoStore = []string{"private, no-store"}
)

func (e *entry) ageHeadersAt(age time.Duration) *ageHeaders {
	second := int64(age / time.Second)
	if s := e.ageHeaders.Load(); s != nil && s.second == second {
		return s
	}
	s := &ageHeaders{second: second}
	s.age = []string{strconv.FormatInt(second, 10)}
	s.status = []string{cacheName + "; hit; ttl=" + strconv.FormatInt(e.ttl(age), 10)}
	e.ageHeaders.Store(s)
	return s
}

// ttl returns the remaining lifetime of an entry in seconds; negative if the entry is stale.
func (e *entry) ttl(age time.Duration) int64 {
	return int64(e.fresh/time.Second) - int64(age/time.Second)
}

// write writes an entry. status is the value of Cache-Status; nil means a hit.
func (c *Cache) write(w http.ResponseWriter, r *http.Request, call *Call, e *entry, now time.Time, status []string) error {
	s := e.ageHeadersAt(e.age(now))
	if status == nil {
		status = s.status
	}
	header := w.Header()
	header["Age"] = s.age
	header["Cache-Status"] = status
	if e.key.personal || isAuthorised(r, call) {
		header["Cache-Control"] = privateNoCache
		setVary(header, variesByUser)
	} else {
		header["Cache-Control"] = publicNoCache
		setVary(header, varies)
	}
	if len(r.Header["Cookie"]) > 0 && call.Principal == (Principal{}) {
		setVary(header, cookie) // a cookie may identify the user
	}
	if len(call.Scheme.Headers) > 0 {
		setVary(header, call.Scheme.Headers)
	}
	accepts := acceptedCodings(r.Header["Accept-Encoding"])
	if r.Method != http.MethodPost {
		if f := e.matchingForm(r.Header, &accepts); f != nil {
			return e.writeNotModified(w, f)
		}
	}
	if e.uses.Load() < 2 {
		e.uses.Add(1)
	}
	f, grown := e.chooseForm(&accepts)
	if grown > 0 {
		c.store.grow(e, int64(grown))
	}
	return e.writeForm(w, r, call, f)
}

// isAuthorised reports whether a request has credentials (Authorization or Cookie) or a principal.
func isAuthorised(r *http.Request, call *Call) bool {
	return len(r.Header["Authorization"]) > 0 || len(r.Header["Cookie"]) > 0 || call.Principal != (Principal{})
}

func setVary(header http.Header, values []string) {
	if before := header["Vary"]; len(before) > 0 {
		values = append(slices.Clip(before), values...)
	}
	header["Vary"] = values
}

// writeNotModified writes 304 Not Modified with the headers that RFC 9110 §15.4.5 requires.
func (e *entry) writeNotModified(w http.ResponseWriter, f *form) error {
	header := w.Header()
	header["Etag"] = f.etag
	if location := e.origin["Content-Location"]; location != nil {
		header["Content-Location"] = location
	}
	w.WriteHeader(http.StatusNotModified)
	return nil
}

// writeForm writes a form of the entry. It omits Accept-Ranges (RFC 9110 §14.3), because an eighth header would grow the map.
func (e *entry) writeForm(w http.ResponseWriter, r *http.Request, call *Call, f *form) error {
	header := w.Header()
	for i := range e.headers {
		header[e.headers[i].name] = e.headers[i].values
	}
	if r.Method != http.MethodPost && e.status == http.StatusOK {
		header["Etag"] = f.etag
	}
	if f.coding != identityCoding {
		header["Content-Encoding"] = contentEncodings[f.coding]
	}
	header["Content-Length"] = f.length
	return call.writeBody(w, r, e.status, f.body, e.local)
}

func (c *Call) writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte, own bool) error {
	if own && c.WriteLocalHeader != nil {
		c.WriteLocalHeader(w, status)
	} else {
		w.WriteHeader(status)
	}
	if r.Method == http.MethodHead || len(body) == 0 {
		return nil
	}
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("writing the response: %w", err)
	}
	return nil
}

// hopByHop lists hop-by-hop headers (RFC 9110 §7.6.1) and headers that relay and the server set.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Cache-Status"}

// relay writes a response without storing it. Responses to authorized requests are always private, regardless of the origin's
// Cache-Control, because the origin does not know about the guard (RFC 9111 §3.5).
func relay(w http.ResponseWriter, r *http.Request, call *Call, a *Response, status string) error {
	header := w.Header()
	for name, values := range a.Header {
		if name == "Vary" {
			setVary(header, values)
		} else if !slices.Contains(hopByHop, name) {
			header[name] = values
		}
	}
	if isAuthorised(r, call) {
		header["Cache-Control"] = privateNoCache
		if parseDirectives(a.Header["Cache-Control"]).has("no-store") {
			header["Cache-Control"] = privateNoStore
		}
	}
	header["Cache-Status"] = []string{status}
	if a.Status != http.StatusNotModified && a.Status != http.StatusNoContent {
		header["Content-Length"] = []string{strconv.Itoa(len(a.Body))}
	}
	return call.writeBody(w, r, a.Status, a.Body, a.IsLocal)
}

// Response is the response that a [Producer] returns.
type Response struct {
	// Status is the HTTP status. Responses with status 200 are stored, and those with 404, 410 and 422 for a short time.
	Status int

	// Header is the response header. Cache-Control, Expires, Age, Date and Vary determine the lifetime (RFC 9111 §5).
	// Content-Type, Content-Language, Content-Location, Last-Modified and, for validation, ETag are stored. Other headers are
	// sent only to the first client.
	Header http.Header

	// Body is the complete body without content coding. It must not be modified.
	Body []byte

	// EntityTag is the opaque part of a strong entity tag for the body. Set it if clients can also get the response, with the
	// same tag, without the cache. Default: a hash of the body.
	EntityTag string

	// IsLocal reports whether this process produced the response. Default: false, another server produced it.
	IsLocal bool

	// Negative marks a fallback response with status 200 that is stored only as briefly as a 404. Default: false.
	Negative bool

	// Tags are the canonicals of the value sets, code systems and concept maps that the response depends on, with |version
	// if a version was requested. Default: nil, any change of a definition invalidates the response.
	Tags []string
}

// Producer produces a response. Its request is the client's in normalized form: a GET or POST that has only the headers in the
// key, credentials and trace headers. The producer must not depend on anything else that differs between requests. The
// request's context outlives the client's request, because other clients may be waiting for the response.
//
// To validate a stale response, the request has If-None-Match or If-Modified-Since. A [Response] with status 304 confirms the
// stored response.
//
// Anything other than a complete and valid FHIR response must be returned as an error: failures (5xx), truncated bodies, HTML
// pages. Errors are not stored; a stale response is served instead if one is available.
type Producer func(r *http.Request) (*Response, error)

// Call contains what [Cache.Serve] needs to know about a request in addition to the [http.Request].
type Call struct {
	// Scheme configures the key. Required.
	Scheme *Scheme

	// Principal is the user and client for which the request was authorized. Default: anonymous.
	Principal Principal

	// Body is the body of a POST in canonical form. The producer's request gets this body. It must not be modified.
	Body []byte

	// Produce produces the response. Required.
	Produce Producer

	// WriteLocalHeader replaces the writer's WriteHeader for responses produced in this process. Default: nil, WriteHeader is
	// called.
	WriteLocalHeader func(w http.ResponseWriter, status int)

	// Detach returns a context that Produce may use after the client's request has ended. It is called before the request ends.
	// Default: nil, the request's context is used.
	Detach func(context.Context) context.Context
}

// hasCompleteBody reports whether the body matches Content-Length and has no content coding.
func (a *Response) hasCompleteBody() bool {
	length, coding := a.Header.Get("Content-Length"), a.Header.Get("Content-Encoding")
	return (length == "" || length == strconv.Itoa(len(a.Body))) && (coding == "" || strings.EqualFold(coding, "identity"))
}

// InvalidateTag removes the responses that depend on a definition, and those without tags, and returns their number. For a
// canonical with a version (url|version), it removes those tagged with this version or without a version. A response that is
// still being produced is sent to the clients waiting for it, but is not stored; later requests fetch a new one.
func (c *Cache) InvalidateTag(canonical string) int {
	base, version, _ := strings.Cut(canonical, "|")
	return c.store.invalidate(func(s *store) []*entry {
		return append(s.dependentEntries(base, version), s.dependentEntries(untaggedKey, "")...)
	})
}

// InvalidateSystem is like [Cache.InvalidateTag], but for a code system and its implicit value sets: url?fhir_vs,
// url?fhir_vs=isa/code.
func (c *Cache) InvalidateSystem(canonical string) int {
	base, version, _ := strings.Cut(canonical, "|")
	return c.store.invalidate(func(s *store) []*entry {
		found := append(s.dependentEntries(base, version), s.dependentEntries(untaggedKey, "")...)
		for tag := range s.tags {
			if strings.HasPrefix(tag, base+"?") {
				found = append(found, s.dependentEntries(tag, version)...)
			}
		}
		return found
	})
}

// dependentEntries returns the entries that depend on a version of a definition. An empty version matches all.
func (s *store) dependentEntries(canonical, version string) (found []*entry) {
	for e := range s.tags[canonical] {
		if e.dependsOn(canonical, version) {
			found = append(found, e)
		}
	}
	return found
}

// Purge removes all responses and returns their number.
func (c *Cache) Purge() int {
	return c.store.invalidate(func(s *store) (found []*entry) {
		for _, e := range s.entries {
			found = append(found, e)
		}
		return found
	})
}

// invalidate starts a new generation, removes the entries that find returns, and returns their number.
func (s *store) invalidate(find func(*store) []*entry) (removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation = newGeneration()
	for _, e := range find(s) {
		if s.entries[e.key.sum] == e {
			s.remove(e)
			removed++
		}
	}
	return removed
}

func (s *store) currentGeneration() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

// index maps canonical URLs to the entries that depend on them.
type index map[string]map[*entry]struct{}

func (x index) put(e *entry) {
	for key := range e.indexKeys() {
		if x[key] == nil {
			x[key] = make(map[*entry]struct{}, 1)
		}
		x[key][e] = struct{}{}
	}
}

func (x index) drop(e *entry) {
	for key := range e.indexKeys() {
		if delete(x[key], e); len(x[key]) == 0 {
			delete(x, key)
		}
	}
}

// untaggedKey is the index key of entries without tags.
const untaggedKey = ""

func (e *entry) indexKeys() iter.Seq[string] {
	return func(yield func(string) bool) {
		if e.tags == nil {
			yield(untaggedKey)
			return
		}
		for _, tag := range e.tags {
			if canonical, _, _ := strings.Cut(tag, "|"); !yield(canonical) {
				return
			}
		}
	}
}

// dependsOn reports whether an entry depends on the given version of a definition, or on its current version. An empty version
// matches all.
func (e *entry) dependsOn(canonical, version string) bool {
	if version == "" || e.tags == nil {
		return true
	}
	for _, tag := range e.tags {
		if tag == canonical || tag == canonical+"|"+version {
			return true
		}
	}
	return false
}

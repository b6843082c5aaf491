package cache

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
)

// entry is a stored response, ready to be written. Only its atomic fields and its place change.
type entry struct {
	key     Key
	status  int
	origin  http.Header // storedHeaders of the response
	headers []field     // writtenHeaders of origin
	tags    []string
	own     bool // produced by this process
	forms   [codings]encoding
	made    time.Time // time of creation at the origin
	freshness

	uses  atomic.Uint32 // number of uses, capped at two
	stamp atomic.Pointer[stamp]
	retry atomic.Int64 // earliest next fetch after a failure or during a fetch, in Unix nanoseconds

	place place // guarded by the store's mutex
}

type field struct {
	name   string
	values []string
}

var storedHeaders = []string{"Content-Type", "Content-Language", "Content-Location", "Last-Modified", "Etag", "Cache-Control", "Expires"}

// writtenHeaders are written unchanged. ETag is excluded because the entry's tag may belong to another coding.
var writtenHeaders = storedHeaders[:4]

func newEntry(t *target, a *Answer, f freshness, now time.Time) *entry {
	e := &entry{key: t.key, status: a.Status, tags: a.Tags, own: a.IsLocal, made: now.Add(-f.age), freshness: f}
	e.origin = make(http.Header, len(storedHeaders))
	for _, name := range storedHeaders {
		if values := a.Header[name]; len(values) > 0 {
			e.origin[name] = slices.Clip(values) // so that appending does not modify the producer's slice
		}
	}
	e.prepare(a.Body, a.EntityTag)
	return e
}

// prepare sets the headers and the uncompressed form of the body, with a computed tag if tag is empty.
func (e *entry) prepare(body []byte, tag string) {
	for _, name := range writtenHeaders {
		if values := e.origin[name]; len(values) > 0 {
			e.headers = append(e.headers, field{name, values})
		}
	}
	if tag == "" {
		sum := sha256.New()
		sum.Write(appendParts(nil, e.origin["Content-Type"]))
		sum.Write(body)
		tag = base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
	}
	e.forms[identity].Store(newForm(identity, body, tag))
}

// revalidated returns an entry with the old body and the header updated from a 304 (RFC 9111 §4.3.4).
func (o *Options) revalidated(old *entry, t *target, a *Answer, now time.Time) (*entry, bool) {
	header := old.origin.Clone()
	maps.Copy(header, a.Header)
	header["Content-Type"] = old.origin["Content-Type"]
	tags := old.tags
	if a.Tags != nil {
		tags = a.Tags
	}
	plain := old.forms[identity].Load()
	whole := &Answer{Status: old.status, Header: header, Body: plain.body, EntityTag: plain.tag, Tags: tags}
	f, ok := o.freshnessOf(whole, t.key, now)
	e := newEntry(t, whole, f, now)
	for coding := identity + 1; coding < codings; coding++ {
		e.forms[coding].Store(old.forms[coding].Load())
	}
	e.uses.Store(old.uses.Load())
	return e, ok
}

// Measured overhead of an entry and of a tag in bytes; verified by a test.
const (
	entryOverhead = 1500
	tagOverhead   = 260
)

// cost returns the size of an entry in bytes without its aliases.
func (e *entry) cost() int64 {
	size := entryOverhead + len(e.forms[identity].Load().body)
	for name, values := range e.origin {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	for _, tag := range e.tags {
		size += tagOverhead + len(tag)
	}
	for coding := identity + 1; coding < codings; coding++ {
		if f := e.forms[coding].Load(); f != nil {
			size += f.cost()
		}
	}
	return int64(size)
}

func (e *entry) age(now time.Time) time.Duration { return max(0, now.Sub(e.made)) }

// choose returns the form to write: the coding that the client prefers, from the second use on; identity before that
// and where compression does not help. grown is the growth of the entry in bytes.
func (e *entry) choose(accepts *weights) (f *form, grown int) {
	plain := e.forms[identity].Load()
	mustCode := accepts[identity] == 0
	if len(plain.body) < minCompressed && !mustCode {
		return plain, 0
	}
	c := accepts.best(func(c coding) bool { return mustCode || e.worthCoding(c, len(plain.body)) })
	if c == identity {
		return plain, 0
	}
	if f = e.forms[c].Load(); f != nil {
		return f, 0
	}
	if e.uses.Load() < 2 && !mustCode {
		return plain, 0
	}
	if !e.forms[c].compressing.CompareAndSwap(false, true) && !mustCode {
		return plain, 0
	}
	f = newForm(c, encode(c, plain.body), plain.tag)
	if !e.forms[c].CompareAndSwap(nil, f) {
		return e.forms[c].Load(), 0
	}
	return f, f.cost()
}

// worthCoding reports whether a coding makes the body smaller, or has not been tried yet.
func (e *entry) worthCoding(c coding, length int) bool {
	f := e.forms[c].Load()
	return f == nil || len(f.body) < length
}

// place is the position of an entry in the store.
type place struct {
	segment int
	element *list.Element
	aliases []string
	size    int64
}

// stamp contains the headers of an entry that change every second.
type stamp struct {
	second int64 // age of the entry
	age    []string
	status []string // Cache-Status of a hit
}

// coding is a content coding (RFC 9110 §8.4.1).
type coding uint8

// Content codings. If a client accepts several equally, the highest is used.
const (
	identity coding = iota
	gzipped
	zstandard
	codings // number of codings
)

// names are the codings in headers. suffixes are appended to the entity tags of coded forms. They differ from those of
// Caddy's encode, which strips its own.
var (
	names    = [codings]string{"", "gzip", "zstd"}
	suffixes = [codings]string{"", "-gz", "-zs"}
)

// minCompressed is the minimum size of a body to compress, in bytes. Smaller bodies fit into one packet.
const minCompressed = 1024

// weights contains the client's preference for each coding in thousandths; 0 means not acceptable.
type weights [codings]int

// unnamed is the weight of identity if it is not listed: acceptable, but last.
const unnamed = 1

// acceptedCodings parses Accept-Encoding (RFC 9110 §12.5.3). Without the header, only identity is acceptable.
func acceptedCodings(values []string) (w weights) {
	w = weights{identity: unnamed}
	var named [codings]bool
	others, wildcard := 0, false
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(item, ";")
			name, q := strings.Trim(name, " \t"), negotiation.Weight(parameters)
			if name == "*" {
				others, wildcard = q, true
				continue
			}
			if c, ok := codingOf(name); ok {
				w[c], named[c] = q, true
			}
		}
	}
	for c := range codings {
		if wildcard && !named[c] && (c != identity || others == 0) {
			w[c] = others
		}
	}
	return w
}

// codingOf returns the coding with a name; x-gzip means gzip (RFC 9110 §8.4.1.3).
func codingOf(name string) (coding, bool) {
	switch {
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
		return gzipped, true
	case strings.EqualFold(name, "zstd"):
		return zstandard, true
	case strings.EqualFold(name, "identity"):
		return identity, true
	}
	return identity, false
}

// best returns the available coding that the client prefers.
func (w *weights) best(toBeHad func(coding) bool) coding {
	best := identity
	for c := identity + 1; c < codings; c++ {
		if w[c] > 0 && w[c] >= w[best] && toBeHad(c) {
			best = c
		}
	}
	return best
}

// form is a body in one coding.
type form struct {
	coding coding
	body   []byte
	tag    string // entity tag without quotes
	etag   []string
	length []string
}

// encoding is a form that is computed on first use.
type encoding struct {
	atomic.Pointer[form]
	compressing atomic.Bool
}

const formOverhead = 250

// newForm returns a form for a coded body; tag is that of the uncompressed body.
func newForm(c coding, body []byte, tag string) *form {
	tag += suffixes[c]
	return &form{coding: c, body: body, tag: tag, etag: []string{`"` + tag + `"`}, length: []string{strconv.Itoa(len(body))}}
}

func (f *form) cost() int { return formOverhead + len(f.body) }

var encodingNames = [codings][]string{gzipped: {names[gzipped]}, zstandard: {names[zstandard]}}

func encode(c coding, body []byte) []byte {
	if c == zstandard {
		return zstdEncoder().EncodeAll(body, make([]byte, 0, len(body)/4))
	}
	var b bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(body) // a bytes.Buffer never fails
	_ = w.Close()
	return bytes.Clone(b.Bytes())
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// zstdEncoder uses windows that every client can decode (RFC 9659 §3).
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("cache: zstd options: " + err.Error()) // the options are constant
	}
	return e
})

// entityTags yields the opaque parts of the tags in If-None-Match, or * (RFC 9110 §13.1.2), including weak tags. It
// stops at a syntax error.
func entityTags(values []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, rest := range values {
			for {
				rest = strings.TrimLeft(rest, " \t,")
				if rest == "" {
					break
				}
				if rest[0] == '*' {
					yield("*")
					return
				}
				quoted, found := strings.CutPrefix(strings.TrimPrefix(rest, "W/"), `"`)
				if !found {
					return
				}
				end := strings.IndexByte(quoted, '"')
				if end < 0 || !yield(quoted[:end]) {
					return
				}
				rest = quoted[end+1:]
			}
		}
	}
}

// matched returns a form of the entry that the client already has and accepts, or nil.
func (e *entry) matched(header http.Header, accepts *weights) *form {
	values := header["If-None-Match"]
	if len(values) == 0 || e.status != http.StatusOK {
		return nil
	}
	for tag := range entityTags(values) {
		for coding := range codings {
			f := e.forms[coding].Load()
			if f != nil && (tag == "*" || tag == f.tag) && (coding == identity || accepts[coding] > 0) {
				return f
			}
		}
	}
	return nil
}

// directives contains the directives of a Cache-Control header; names are in lower case.
type directives map[string]string

// parseDirectives parses Cache-Control (RFC 9111 §5.2).
func parseDirectives(values []string) directives {
	if len(values) == 0 {
		return nil
	}
	d := make(directives)
	for item := range negotiation.Items(values) {
		name, value, _ := strings.Cut(item, "=")
		name = strings.ToLower(strings.Trim(name, " \t"))
		if _, repeated := d[name]; !repeated {
			d[name] = strings.Trim(value, " \t\"")
		}
	}
	return d
}

func (d directives) has(name string) bool {
	_, ok := d[name]
	return ok
}

// seconds returns the value of a directive in seconds. An invalid value counts as 0 (RFC 9111 §4.2.1).
func (d directives) seconds(name string) (value time.Duration, ok bool) {
	text, ok := d[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, true
	}
	return time.Duration(n) * time.Second, true
}

// freshness contains the lifetimes of a response.
type freshness struct {
	age time.Duration // age on arrival

	// Durations since the creation of the response, which was age before its arrival.
	fresh                time.Duration // usable without revalidation
	staleWhileRevalidate time.Duration // usable during revalidation (RFC 5861 §3)
	staleIfError         time.Duration // usable after a failure (RFC 5861 §4)
	kept                 time.Duration // minimum retention, for validation
}

func isNegative(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status == http.StatusUnprocessableEntity
}

func (a *Answer) isNegative() bool { return a.Negative || isNegative(a.Status) }

// freshnessOf returns the lifetimes of a response and whether it may be stored at all (RFC 9111 §3). The options limit
// the lifetimes of the response and provide the defaults.
func (o *Options) freshnessOf(a *Answer, key Key, now time.Time) (f freshness, ok bool) {
	d := parseDirectives(a.Header["Cache-Control"])
	switch {
	case a.Status != http.StatusOK && !isNegative(a.Status),
		len(a.Body) == 0,
		d.has("no-store"),
		d.has("private") && !key.personal,
		len(a.Header["Set-Cookie"]) > 0, // addressed to a single client
		!varyIsKept(a.Header["Vary"], key):
		return f, false
	}
	limit := o.TTL
	if a.isNegative() {
		limit = min(o.NegativeTTL, o.TTL)
	}
	f.age = ageOf(a.Header, now)
	f.fresh = f.age + limit
	if lifetime, said := saidLifetime(d, a.Header, now); said {
		f.fresh = min(lifetime, f.fresh)
	}
	if d.has("no-cache") {
		f.fresh = 0
	}
	f.staleWhileRevalidate, f.staleIfError = f.fresh, f.fresh
	if !a.isNegative() && !d.has("no-cache") && !d.has("must-revalidate") && !d.has("proxy-revalidate") {
		f.staleWhileRevalidate += d.atMost("stale-while-revalidate", o.StaleWhileRevalidate)
		f.staleIfError += d.atMost("stale-if-error", o.StaleIfError)
	}
	f.kept = max(f.staleWhileRevalidate, f.staleIfError)
	if canRevalidate(a) {
		f.kept = max(f.kept, f.fresh, f.age) + o.TTL
	}
	return f, f.kept > f.age
}

func isFailure(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// canRevalidate reports whether a response is worth storing only for validation.
func canRevalidate(a *Answer) bool {
	return a.Status == http.StatusOK && a.Header.Get("Etag") != ""
}

// atMost returns the value of a directive capped at limit, or limit without the directive.
func (d directives) atMost(name string, limit time.Duration) time.Duration {
	if value, ok := d.seconds(name); ok {
		return min(value, limit)
	}
	return limit
}

// saidLifetime returns the explicit lifetime of a response (RFC 9111 §4.2.1).
func saidLifetime(d directives, header http.Header, now time.Time) (lifetime time.Duration, said bool) {
	for _, name := range []string{"s-maxage", "max-age"} {
		if lifetime, said = d.seconds(name); said {
			return lifetime, true
		}
	}
	expires, said := header["Expires"]
	if !said {
		return 0, false
	}
	end, err := http.ParseTime(expires[0])
	if err != nil {
		return 0, true // an invalid date is in the past (RFC 9111 §5.3)
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return max(0, end.Sub(now)), true
}

// ageOf returns the age of a response by its Age or Date, whichever is higher (RFC 9111 §4.2.3).
func ageOf(header http.Header, now time.Time) (age time.Duration) {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		age = now.Truncate(time.Second).Sub(date)
	}
	if n, err := strconv.ParseUint(header.Get("Age"), 10, 31); err == nil {
		age = max(age, time.Duration(n)*time.Second)
	}
	return max(0, age)
}

// varyIsKept reports whether the key covers all headers in Vary (RFC 9111 §4.1). Of the headers that the producer gets,
// only credentials can be missing in the key.
func varyIsKept(vary []string, key Key) bool {
	for name := range negotiation.Items(vary) {
		isCredential := slices.ContainsFunc([]string{"Authorization", "Cookie"}, func(c string) bool { return strings.EqualFold(c, name) })
		if name == "*" || isCredential && !key.personal {
			return false
		}
	}
	return true
}

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

// entry is a stored response, ready to be written. Only its atomic fields and its position change.
type entry struct {
	key     Key
	status  int
	origin  http.Header // storedHeaders of the response
	headers []field     // writtenHeaders of origin
	tags    []string
	local   bool // produced by this process
	forms   [codingCount]lazyForm
	created time.Time // when the origin created the response
	freshness

	uses       atomic.Uint32 // number of uses, capped at 2
	ageHeaders atomic.Pointer[ageHeaders]
	retry      atomic.Int64 // earliest time of the next fetch after a failure or during a fetch, in Unix nanoseconds

	position storePosition // guarded by the store's mutex
}

type field struct {
	name   string
	values []string
}

var storedHeaders = []string{"Content-Type", "Content-Language", "Content-Location", "Last-Modified", "Etag", "Cache-Control", "Expires"}

// writtenHeaders are written unchanged. ETag is excluded because the tag of the entry may belong to another coding.
var writtenHeaders = storedHeaders[:4]

func newEntry(t *target, a *Response, f freshness, now time.Time) *entry {
	e := &entry{key: t.key, status: a.Status, tags: a.Tags, local: a.IsLocal, created: now.Add(-f.age), freshness: f}
	e.origin = make(http.Header, len(storedHeaders))
	for _, name := range storedHeaders {
		if values := a.Header[name]; len(values) > 0 {
			e.origin[name] = slices.Clip(values) // appending must not modify the producer's slice
		}
	}
	e.prepare(a.Body, a.EntityTag)
	return e
}

// prepare sets the headers to write and the uncompressed form of the body. If tag is empty, it is computed.
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
	e.forms[identityCoding].Store(newForm(identityCoding, body, tag))
}

// revalidated returns an entry with the body of old and with its header updated from a, a 304 response (RFC 9111 §4.3.4). It
// also reports whether the entry may be stored.
func (o *Options) revalidated(old *entry, t *target, a *Response, now time.Time) (*entry, bool) {
	header := old.origin.Clone()
	maps.Copy(header, a.Header)
	header["Content-Type"] = old.origin["Content-Type"]
	tags := old.tags
	if a.Tags != nil {
		tags = a.Tags
	}
	plain := old.forms[identityCoding].Load()
	whole := &Response{Status: old.status, Header: header, Body: plain.body, EntityTag: plain.tag, Tags: tags}
	f, ok := o.freshnessOf(whole, t.key, now)
	e := newEntry(t, whole, f, now)
	for coding := identityCoding + 1; coding < codingCount; coding++ {
		e.forms[coding].Store(old.forms[coding].Load())
	}
	e.uses.Store(old.uses.Load())
	return e, ok
}

// Overhead of an entry and of a tag in bytes, measured; a test verifies it.
const (
	entryOverhead = 1500
	tagOverhead   = 260
)

// cost returns the size of an entry in bytes, excluding its aliases.
func (e *entry) cost() int64 {
	size := entryOverhead + len(e.forms[identityCoding].Load().body)
	for name, values := range e.origin {
		size += len(name)
		for _, value := range values {
			size += len(value)
		}
	}
	for _, tag := range e.tags {
		size += tagOverhead + len(tag)
	}
	for coding := identityCoding + 1; coding < codingCount; coding++ {
		if f := e.forms[coding].Load(); f != nil {
			size += f.cost()
		}
	}
	return int64(size)
}

func (e *entry) age(now time.Time) time.Duration { return max(0, now.Sub(e.created)) }

// chooseForm returns the form to write. From the second use on, this is the coding that the client prefers; before that, and
// where compression does not help, it is identity. grown is the number of bytes by which the entry has grown.
func (e *entry) chooseForm(accepts *weights) (f *form, grown int) {
	plain := e.forms[identityCoding].Load()
	mustCode := accepts[identityCoding] == 0
	if len(plain.body) < minCompressedSize && !mustCode {
		return plain, 0
	}
	c := accepts.best(func(c coding) bool { return mustCode || e.isWorthCoding(c, len(plain.body)) })
	if c == identityCoding {
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

// isWorthCoding reports whether a coding makes a body of the given length smaller or has not been tried yet.
func (e *entry) isWorthCoding(c coding, length int) bool {
	f := e.forms[c].Load()
	return f == nil || len(f.body) < length
}

// storePosition describes where an entry is in the store.
type storePosition struct {
	segment int
	element *list.Element
	aliases []string
	size    int64
}

// ageHeaders contains the headers of a hit that change every second.
type ageHeaders struct {
	second int64 // age of the entry in seconds
	age    []string
	status []string // value of Cache-Status for a hit
}

// coding is a content coding (RFC 9110 §8.4.1).
type coding uint8

// Content codings. If a client accepts several equally, the one with the highest value is used.
const (
	identityCoding coding = iota
	gzipCoding
	zstdCoding
	codingCount // number of codings
)

// codingNames are the values of Content-Encoding. etagSuffixes are appended to the entity tags of coded forms. They differ from
// the suffixes of Caddy's encode handler, which it strips.
var (
	codingNames  = [codingCount]string{"", "gzip", "zstd"}
	etagSuffixes = [codingCount]string{"", "-gz", "-zs"}
)

// minCompressedSize is the minimum size in bytes of a body that is compressed. Smaller bodies fit into one packet.
const minCompressedSize = 1024

// weights contains the weight that the client gives each coding, in thousandths; 0 means not acceptable.
type weights [codingCount]int

// unlistedWeight is the weight of identity if it is not listed: acceptable, but least preferred.
const unlistedWeight = 1

// acceptedCodings parses Accept-Encoding (RFC 9110 §12.5.3). If the header is absent, only identity is acceptable.
func acceptedCodings(values []string) (w weights) {
	w = weights{identityCoding: unlistedWeight}
	var named [codingCount]bool
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
	for c := range codingCount {
		if wildcard && !named[c] && (c != identityCoding || others == 0) {
			w[c] = others
		}
	}
	return w
}

// codingOf returns the coding with the given name; x-gzip is an alias of gzip (RFC 9110 §8.4.1.3).
func codingOf(name string) (coding, bool) {
	switch {
	case strings.EqualFold(name, "gzip"), strings.EqualFold(name, "x-gzip"):
		return gzipCoding, true
	case strings.EqualFold(name, "zstd"):
		return zstdCoding, true
	case strings.EqualFold(name, "identity"):
		return identityCoding, true
	}
	return identityCoding, false
}

// best returns the coding with the highest weight among those for which isAvailable returns true.
func (w *weights) best(isAvailable func(coding) bool) coding {
	best := identityCoding
	for c := identityCoding + 1; c < codingCount; c++ {
		if w[c] > 0 && w[c] >= w[best] && isAvailable(c) {
			best = c
		}
	}
	return best
}

// form is a body in one content coding.
type form struct {
	coding coding
	body   []byte
	tag    string // entity tag without quotes
	etag   []string
	length []string
}

// lazyForm is a form that is encoded on first use.
type lazyForm struct {
	atomic.Pointer[form]
	compressing atomic.Bool
}

const formOverhead = 250

// newForm returns a form for an encoded body. tag is the uncompressed body's entity tag; newForm adds a suffix.
func newForm(c coding, body []byte, tag string) *form {
	tag += etagSuffixes[c]
	return &form{coding: c, body: body, tag: tag, etag: []string{`"` + tag + `"`}, length: []string{strconv.Itoa(len(body))}}
}

func (f *form) cost() int { return formOverhead + len(f.body) }

var contentEncodings = [codingCount][]string{gzipCoding: {codingNames[gzipCoding]}, zstdCoding: {codingNames[zstdCoding]}}

func encode(c coding, body []byte) []byte {
	if c == zstdCoding {
		return zstdEncoder().EncodeAll(body, make([]byte, 0, len(body)/4))
	}
	var b bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(body) // bytes.Buffer never returns an error
	_ = w.Close()
	return bytes.Clone(b.Bytes())
}

var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// zstdEncoder uses windows no larger than the size that every client must support (RFC 9659 §3).
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic("cache: zstd options: " + err.Error()) // the options are constant
	}
	return e
})

// entityTags yields the opaque parts of the tags in If-None-Match, including weak tags, or * (RFC 9110 §13.1.2). It stops at a
// syntax error.
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

// matchingForm returns a form that the client already has and accepts, or nil.
func (e *entry) matchingForm(header http.Header, accepts *weights) *form {
	values := header["If-None-Match"]
	if len(values) == 0 || e.status != http.StatusOK {
		return nil
	}
	for tag := range entityTags(values) {
		for coding := range codingCount {
			f := e.forms[coding].Load()
			if f != nil && (tag == "*" || tag == f.tag) && (coding == identityCoding || accepts[coding] > 0) {
				return f
			}
		}
	}
	return nil
}

// directives contains the directives of a Cache-Control header by lower-case name.
type directives map[string]string

// parseDirectives parses Cache-Control (RFC 9111 §5.2).
func parseDirectives(values []string) directives {
	if len(values) == 0 {
		return nil
	}
	d := make(directives)
	for item := range negotiation.ListItems(values) {
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

// seconds returns the value of a directive in seconds. An invalid value is treated as 0 (RFC 9111 §4.2.1).
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

type freshness struct {
	age time.Duration // age of the response when it arrived

	// Durations since the response was created; on arrival, it is already age old.
	fresh                time.Duration // usable without revalidation
	staleWhileRevalidate time.Duration // usable during revalidation (RFC 5861 §3)
	staleIfError         time.Duration // usable after a failure (RFC 5861 §4)
	retention            time.Duration // minimum retention, for validation
}

func isNegative(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status == http.StatusUnprocessableEntity
}

func (a *Response) isNegative() bool { return a.Negative || isNegative(a.Status) }

// freshnessOf returns the lifetimes of a response and whether it may be stored at all (RFC 9111 §3). The options provide
// default lifetimes and limit those of the response.
func (o *Options) freshnessOf(a *Response, key Key, now time.Time) (f freshness, ok bool) {
	d := parseDirectives(a.Header["Cache-Control"])
	switch {
	case a.Status != http.StatusOK && !isNegative(a.Status),
		len(a.Body) == 0,
		d.has("no-store"),
		d.has("private") && !key.personal,
		len(a.Header["Set-Cookie"]) > 0, // Set-Cookie is for a single client
		!keyCoversVary(a.Header["Vary"], key):
		return f, false
	}
	limit := o.TTL
	if a.isNegative() {
		limit = min(o.NegativeTTL, o.TTL)
	}
	f.age = ageOf(a.Header, now)
	f.fresh = f.age + limit
	if lifetime, explicit := explicitLifetime(d, a.Header, now); explicit {
		f.fresh = min(lifetime, f.fresh)
	}
	if d.has("no-cache") {
		f.fresh = 0
	}
	f.staleWhileRevalidate, f.staleIfError = f.fresh, f.fresh
	if !a.isNegative() && !d.has("no-cache") && !d.has("must-revalidate") && !d.has("proxy-revalidate") {
		f.staleWhileRevalidate += d.cappedSeconds("stale-while-revalidate", o.StaleWhileRevalidate)
		f.staleIfError += d.cappedSeconds("stale-if-error", o.StaleIfError)
	}
	f.retention = max(f.staleWhileRevalidate, f.staleIfError)
	if canRevalidate(a) {
		f.retention = max(f.retention, f.fresh, f.age) + o.TTL
	}
	return f, f.retention > f.age
}

func isFailure(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// canRevalidate reports whether a response that is already stale is worth storing because it can be validated.
func canRevalidate(a *Response) bool {
	return a.Status == http.StatusOK && a.Header.Get("Etag") != ""
}

// cappedSeconds returns the value of a directive, but at most limit. If the directive is absent, it returns limit.
func (d directives) cappedSeconds(name string, limit time.Duration) time.Duration {
	if value, ok := d.seconds(name); ok {
		return min(value, limit)
	}
	return limit
}

// explicitLifetime returns the lifetime that the response specifies, if any (RFC 9111 §4.2.1).
func explicitLifetime(d directives, header http.Header, now time.Time) (lifetime time.Duration, explicit bool) {
	for _, name := range []string{"s-maxage", "max-age"} {
		if lifetime, explicit = d.seconds(name); explicit {
			return lifetime, true
		}
	}
	expires, explicit := header["Expires"]
	if !explicit {
		return 0, false
	}
	end, err := http.ParseTime(expires[0])
	if err != nil {
		return 0, true // an invalid date means a time in the past (RFC 9111 §5.3)
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return max(0, end.Sub(now)), true
}

// ageOf returns the age of a response on arrival: the higher of Age and the time since Date (RFC 9111 §4.2.3).
func ageOf(header http.Header, now time.Time) (age time.Duration) {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		age = now.Truncate(time.Second).Sub(date)
	}
	if n, err := strconv.ParseUint(header.Get("Age"), 10, 31); err == nil {
		age = max(age, time.Duration(n)*time.Second)
	}
	return max(0, age)
}

// keyCoversVary reports whether the key covers all headers in Vary (RFC 9111 §4.1). Credentials are the only headers that the
// producer gets but a key may lack.
func keyCoversVary(vary []string, key Key) bool {
	for name := range negotiation.ListItems(vary) {
		isCredential := slices.ContainsFunc([]string{"Authorization", "Cookie"}, func(c string) bool { return strings.EqualFold(c, name) })
		if name == "*" || isCredential && !key.personal {
			return false
		}
	}
	return true
}

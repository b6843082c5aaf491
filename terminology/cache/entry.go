package cache

import (
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// entry is a stored answer, ready to be written. Only its atomic fields and its place change.
type entry struct {
	key     Key
	status  int
	origin  http.Header // the storedHeaders of the producer's answer
	headers []field     // the writtenHeaders of origin
	tags    []string
	own     bool // made in this process
	forms   [codings]encoding
	made    time.Time // at its origin
	freshness

	uses  atomic.Uint32 // how often it was written, up to two
	stamp atomic.Pointer[stamp]
	retry atomic.Int64 // when to ask again, after a failure or while asking, in Unix nanoseconds

	place place // guarded by the store
}

type field struct {
	name   string
	values []string
}

var storedHeaders = []string{"Content-Type", "Content-Language", "Content-Location", "Last-Modified", "Etag", "Cache-Control", "Expires"}

// writtenHeaders are written as they are. ETag is not, since ours may be of another coding.
var writtenHeaders = storedHeaders[:4]

func newEntry(t *target, a *Answer, f freshness, now time.Time) *entry {
	e := &entry{key: t.key, status: a.Status, tags: a.Tags, own: a.Own, made: now.Add(-f.age), freshness: f}
	e.origin = make(http.Header, len(storedHeaders))
	for _, name := range storedHeaders {
		if values := a.Header[name]; len(values) > 0 {
			e.origin[name] = slices.Clip(values) // so that appending does not write into ours
		}
	}
	e.prepare(a.Body, a.EntityTag)
	return e
}

// prepare makes the headers of origin and the plain form of the body, with a tag if there is none.
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

// revalidated returns an entry with the old body, freshened by the header of a 304 (RFC 9111 §4.3.4).
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

// What an entry and a tag take in bytes beside their contents, as a test measures it.
const (
	entryOverhead = 1500
	tagOverhead   = 260
)

// cost returns the bytes that an entry takes, without its aliases.
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

// choose returns the form to write: in the coding that the client wants most, or plain while compression does not pay,
// which it does from the second use on. grown is by how much the entry has grown.
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

// worthCoding reports whether a coding makes the body smaller, as far as is known.
func (e *entry) worthCoding(c coding, length int) bool {
	f := e.forms[c].Load()
	return f == nil || len(f.body) < length
}

// place is where an entry stands in the store.
type place struct {
	segment int
	element *list.Element
	aliases []string
	size    int64
}

// stamp holds the headers of an entry that change each second.
type stamp struct {
	second  int64 // of the entry's age
	maxAge  time.Duration
	age     []string
	status  []string // Cache-Status of a hit
	public  []string // Cache-Control
	private []string
}

package cache

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Answer is what a [Producer] made.
type Answer struct {
	// Status is the HTTP status. Kept are 200 and, for a short time, 404, 410 and 422.
	Status int

	// Header holds the answer's header. What it says of its lifetime counts (RFC 9111 §5): Cache-Control,
	// Expires, Age, Date, Vary. Kept with the answer are Content-Type, Content-Language, Content-Location
	// and Last-Modified, and ETag to revalidate it with; all else only reaches who asked first.
	Header http.Header

	// Body is the whole body, without a content coding. It is not changed any more.
	Body []byte

	// EntityTag is the opaque part of a strong entity tag of the body as it is, for a producer whose answers clients
	// get past the cache too: they are told apart by one tag then. Default: one is made of the bytes.
	EntityTag string

	// Negative is whether an answer with status 200 says no for now, for lack of a better one: it is kept as shortly
	// as a 404. Default: false.
	Negative bool

	// Tags names the definitions that the answer was made from: canonical URLs, with |version where one was
	// chosen, of value sets, code systems and concept maps. Nil means that they are not known; then each
	// change of any definition ends the answer.
	Tags []string
}

// Producer makes an answer. The request it is given is the one that was made, normalised: it is a GET or a POST,
// and its header has nothing that its key does not hold, but for the credentials and for what identifies it in
// traces. The producer must not look at anything else that differs from request to request.
//
// Where an old answer can be revalidated, the request has If-None-Match or If-Modified-Since; an Answer with
// status 304 then says that the old one is still good.
//
// What is not a whole and valid answer of FHIR must be an error: a server's failure (5xx), a body that was cut
// off, a page in HTML. Nothing is kept then, and a stale answer takes its place if there is one.
//
// The request's context is not that of the client, which may go away while others wait for the same.
type Producer func(r *http.Request) (*Answer, error)

// Call is one request as its handler knows it.
type Call struct {
	// Scheme says what its key is made of. Required.
	Scheme *Scheme

	// Principal is whom it was authorised for.
	Principal Principal

	// Body is the body of a POST in a canonical form, which the producer gets as the request's body. It is
	// not changed any more.
	Body []byte

	// Produce makes the answer. Required.
	Produce Producer

	// Detach returns the context for Produce, which may use it when the client's request is over: it is called
	// before. Default: nil, the values of the request's context may be used at any time.
	Detach func(context.Context) context.Context
}

// passed are the headers that a producer gets beside those that the key holds: answers do not depend on them,
// or the caller said so by [VaryByNone].
var passed = []string{"Authorization", "Cookie", "Traceparent", "Tracestate", "X-Request-Id"}

// request returns the request for the producer: r, of which only what the key holds is left.
func (c *Call) request(r *http.Request, representation Representation, old *entry) *http.Request {
	header := make(http.Header, len(passed)+len(c.Scheme.Headers)+4)
	for _, names := range [...][]string{passed, c.Scheme.Headers} {
		for _, name := range names {
			if values := r.Header[name]; len(values) > 0 {
				header[name] = slices.Clone(values)
			}
		}
	}
	representation.apply(header)
	if old != nil {
		setUnlessEmpty(header, "If-None-Match", old.origin.Get("Etag"))
		setUnlessEmpty(header, "If-Modified-Since", old.origin.Get("Last-Modified"))
	}
	ctx := r.Context()
	if c.Detach != nil {
		ctx = c.Detach(ctx)
	}
	clone := r.Clone(ctx)
	clone.Header = header
	clone.Method = methodClass(r.Method)
	clone.Body, clone.ContentLength, clone.TransferEncoding = http.NoBody, 0, nil
	if clone.Method == http.MethodPost {
		setUnlessEmpty(header, "Content-Type", r.Header.Get("Content-Type"))
		clone.ContentLength = int64(len(c.Body))
		clone.Body = io.NopCloser(bytes.NewReader(c.Body))
	}
	return clone
}

// setUnlessEmpty sets a header that has a value.
func setUnlessEmpty(header http.Header, name, value string) {
	if value != "" {
		header.Set(name, value)
	}
}

// isWhole reports whether the body of an answer is as long as its header says, and not coded.
func (a *Answer) isWhole() bool {
	length, coding := a.Header.Get("Content-Length"), a.Header.Get("Content-Encoding")
	return (length == "" || length == strconv.Itoa(len(a.Body))) && (coding == "" || strings.EqualFold(coding, "identity"))
}

package cache

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// Answer is what a [Producer] made.
type Answer struct {
	// Status is the HTTP status. 200 is stored and, for a short time, 404, 410 and 422.
	Status int

	// Header is the answer's header. Cache-Control, Expires, Age, Date and Vary decide its lifetime (RFC 9111 §5).
	// Content-Type, Content-Language, Content-Location, Last-Modified, and ETag for validation, are stored with the
	// answer; all others reach only the first client.
	Header http.Header

	// Body is the whole body, without a content coding. It does not change.
	Body []byte

	// EntityTag is the opaque part of a strong entity tag of the body, for a producer whose answers also reach clients
	// past the cache, with the same tag. Default: one is made of the bytes.
	EntityTag string

	// Own says that the answer was made in this process. Default: false, another server has made it.
	Own bool

	// Negative says that an answer with status 200 stands in for a better one, and is stored as briefly as a 404.
	// Default: false.
	Negative bool

	// Tags are the canonical URLs, with |version if one was chosen, of the value sets, code systems and concept maps
	// that the answer was made from. Default: nil, any change of a definition invalidates the answer.
	Tags []string
}

// Producer makes an answer. Its request is the client's, normalised: a GET or a POST whose header has only what the key
// holds, credentials, and what identifies it in traces. The producer must not use anything else that differs between
// requests. The request's context outlives that of the client, since others may wait for the same answer.
//
// To validate a stale answer, the request has If-None-Match or If-Modified-Since. An Answer with status 304 then says
// that the old one is still good.
//
// What is not a whole and valid FHIR answer is an error: a server's failure (5xx), a body cut off, a page in HTML. It is
// not stored, and a stale answer takes its place if there is one.
type Producer func(r *http.Request) (*Answer, error)

// Call is a request as its handler knows it.
type Call struct {
	// Scheme says what the key is made of. Required.
	Scheme *Scheme

	// Principal is whom the request was authorised for.
	Principal Principal

	// Body is the body of a POST in a canonical form, which becomes the body of the producer's request. It does not
	// change.
	Body []byte

	// Produce makes the answer. Required.
	Produce Producer

	// BeginOwn writes the header of an answer that was made in this process, in place of the writer's WriteHeader. Default:
	// nil, it is as any other.
	BeginOwn func(w http.ResponseWriter, status int)

	// Detach returns a context that Produce may use after the client's request has ended. It is called before that.
	// Default: nil, the request's own context may be used.
	Detach func(context.Context) context.Context
}

// isWhole reports whether the body is as long as its header says, and not coded.
func (a *Answer) isWhole() bool {
	length, coding := a.Header.Get("Content-Length"), a.Header.Get("Content-Encoding")
	return (length == "" || length == strconv.Itoa(len(a.Body))) && (coding == "" || strings.EqualFold(coding, "identity"))
}

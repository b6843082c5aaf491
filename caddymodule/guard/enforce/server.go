package enforce

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairmemory"
)

// server asks the FHIR server what one client's request needs.
type server struct {
	base   string // path of the FHIR API
	limits Limits
	next   NextHandler
	r      *http.Request     // the client's
	asked  int               // requests to the server so far
	share  *fairmemory.Share // of the memory for what is judged
}

func newServer(base string, l Limits, m *fairmemory.Memory, next NextHandler, r *http.Request) server {
	return server{base: base, limits: l.orDefaults(), next: next, r: r, share: m.Share()}
}

// Asked is how many requests the server was sent, since [server.Begin].
func (x *server) Asked() int { return x.asked }

// Begin begins another entry of a bundle, which has requests of its own.
func (x *server) Begin() { x.asked = 0 }

// ownHeaders, as net/http spells them, are not passed on from the client's request, because they speak of the request as
// the client made it: its conditions, its body, and how it wants the answer. What of them is to hold, a call says itself.
var ownHeaders = setOf(
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect",
	"If-Match", "If-Modified-Since", "If-None-Exist", "If-None-Match", "If-Range", "If-Unmodified-Since", "Prefer",
	"Range", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"X-Cascade", "X-Provenance", "X-Rewrite-History", "X-Security-Context", "X-Upsert-Extistence-Check", // so it is spelt
)

// Ask has the next handler answer a call, in JSON without compression, so that the answer can be judged.
func (x *server) Ask(ctx context.Context, c call) (*answer, error) {
	held, err := x.Hold(ctx, c)
	defer held.release()
	if err != nil {
		return nil, err
	}
	a := held.answer()
	a.body = bytes.Clone(a.body)
	return a, nil
}

// Hold is Ask for an answer that is of use only until it is released.
func (x *server) Hold(ctx context.Context, c call) (*heldResponse, error) {
	if x.asked++; x.asked > x.limits.Requests {
		return nil, tooCostly("The request needs more than %d requests to the FHIR server: ask for less at once.", x.limits.Requests)
	}
	held := &heldResponse{header: http.Header{}, body: buffers.Get().(*bytes.Buffer), admit: x.admitting(ctx)}
	err := held.record(x.next, x.request(ctx, c))
	switch {
	case held.refused != nil:
		return held, held.refused
	case err == nil && held.status == 0:
		return held, withheld(errNoAnswer)
	}
	return held, err
}

// Pass has the next handler answer a call to w as it comes, in the media types of accept.
func (x *server) Pass(ctx context.Context, c call, accept []string, w http.ResponseWriter) error {
	r := x.request(ctx, c)
	r.Header["Accept"] = accept
	return x.next.ServeHTTP(w, r)
}

// admitting returns what admits each part of an answer before it is held: up to the limit, and if there is memory.
func (x *server) admitting(ctx context.Context) func(bytes int) error {
	left := x.limits.Answer
	return func(bytes int) error {
		if int64(bytes) > left {
			return withheld(fmt.Errorf("%w: more than %d bytes", errTooLong, x.limits.Answer))
		}
		defer func() { left -= int64(bytes) }()
		return x.reserve(ctx, bytes, left)
	}
}

// request makes a call of the client's request. The two share nothing that a handler may change.
func (x *server) request(ctx context.Context, c call) *http.Request {
	r := x.r.WithContext(ctx)
	r.Method = c.method
	r.URL = &url.URL{Path: x.base, RawQuery: c.query}
	if c.path != "" {
		r.URL.Path += "/" + c.path
	}
	r.RequestURI = r.URL.RequestURI()
	r.Header = x.header(c)
	r.TransferEncoding, r.Trailer, r.Form, r.PostForm, r.MultipartForm = nil, nil, nil, nil, nil
	r.Body, r.ContentLength = http.NoBody, 0
	if len(c.body) > 0 {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	}
	return r
}

// header are the headers of a call: the client's, as far as they speak of who it is, and the call's own.
func (x *server) header(c call) http.Header {
	header := make(http.Header, len(x.r.Header)+len(c.header))
	values := make([]string, 0, len(x.r.Header)+2) // of all headers; most have one
	for name, of := range x.r.Header {
		if !ownHeaders[name] {
			values = append(values, of...)
			header[name] = values[len(values)-len(of) : len(values) : len(values)]
		}
	}
	maps.Copy(header, c.header)
	values = append(values, typeJSON, "identity")
	header["Accept"] = values[len(values)-2 : len(values)-1 : len(values)-1]
	header["Accept-Encoding"] = values[len(values)-1:]
	return header
}

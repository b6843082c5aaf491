package enforce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync"

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

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

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

// heldResponse is a ResponseWriter that holds an answer, as far as it is admitted.
type heldResponse struct {
	header  http.Header
	status  int
	body    *bytes.Buffer
	admit   func(bytes int) error
	refused error // by admit
	done    bool
}

// buffers are those in which answers arrive, whose lengths are not known before. A few are kept, and no large ones.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxBuffer is how large a buffer may be that is kept.
const maxBuffer = 1 << 20

// release gives the buffer back, unless the next handler goes on with it: a panic may have left it writing.
func (h *heldResponse) release() {
	if h == nil {
		return
	}
	if b := h.kept(); b != nil {
		giveBack(b)
	}
}

// kept is the buffer for an answer that is still to be written, to be given back then; nil where the next handler goes
// on with it.
func (h *heldResponse) kept() *bytes.Buffer {
	if !h.done {
		return nil
	}
	h.done = false
	return h.body
}

// giveBack keeps a buffer for another answer. Nothing of what is in it may be in use any more.
func giveBack(b *bytes.Buffer) {
	if b.Cap() <= maxBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// answer is what is held, until it is released.
func (h *heldResponse) answer() *answer {
	return &answer{status: h.status, header: h.header, body: h.body.Bytes()}
}

// Header implements http.ResponseWriter.
func (h *heldResponse) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter. Informational responses are dropped.
func (h *heldResponse) WriteHeader(status int) {
	if h.status == 0 && status >= http.StatusOK {
		h.status, h.header = status, h.header.Clone()
	}
}

// Write implements http.ResponseWriter. Its error makes the next handler stop reading from the server.
func (h *heldResponse) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.refused == nil {
		h.refused = h.admit(len(p))
	}
	if h.refused != nil {
		return 0, h.refused
	}
	return h.body.Write(p)
}

var (
	errTooLong  = errors.New("answer of the FHIR server is too long to judge")
	errNoAnswer = errors.New("the next handler gave no answer")
)

// forgiveAbort goes on with a panic, unless a proxy aborts because we have refused to take more of an answer.
func forgiveAbort(cause any, refused error) {
	if aborted, _ := cause.(error); cause != nil && (refused == nil || !errors.Is(aborted, http.ErrAbortHandler)) {
		panic(cause)
	}
}

// record has the next handler answer. A proxy that aborts because writing failed has not failed itself.
func (h *heldResponse) record(next NextHandler, r *http.Request) error {
	defer func() { forgiveAbort(recover(), h.refused) }()
	err := next.ServeHTTP(h, r)
	h.done = true
	return err
}

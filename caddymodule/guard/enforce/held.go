package enforce

import (
	"bytes"
	"errors"
	"net/http"
	"sync"
)

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

// NextHandler leads to the FHIR server. It is caddyhttp.Handler without Caddy.
type NextHandler interface {
	// ServeHTTP answers a request. An error says that it did not.
	ServeHTTP(w http.ResponseWriter, r *http.Request) error
}

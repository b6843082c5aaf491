// Package slowbody aborts request bodies that arrive too slowly.
package slowbody

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// pace is the minimum rate of a request body. Otherwise, a body that arrives byte by byte could occupy its connection for hours
// and delay a restart, which waits for pending requests.
type pace struct {
	maxWait time.Duration // maximum time spent waiting for the client
	rate    int64         // bytes that extend the remaining wait by one second
}

var (
	// FormPace is the minimum rate of forms and registrations, which are at most 64 KiB.
	FormPace = pace{maxWait: 10 * time.Second, rate: 16 << 10}

	// FHIRPace is the minimum rate of resources, which may be large and sent from a phone. It corresponds to the defaults of
	// Apache's mod_reqtimeout.
	FHIRPace = pace{maxWait: 20 * time.Second, rate: 500}
)

// Limit makes reads of the request body fail if the body arrives more slowly than the pace. The returned function must be
// called before the handler returns.
func (p pace) Limit(w http.ResponseWriter, r *http.Request) (done func()) {
	if _, isPaced := r.Body.(*pacedBody); isPaced || r.Body == nil || r.ContentLength == 0 {
		return func() {}
	}
	b := &pacedBody{ReadCloser: r.Body, controller: http.NewResponseController(w), pace: p, remaining: p.maxWait, isDrained: r.ProtoMajor == 1}
	r.Body = b
	if b.isDrained {
		b.setDeadline(time.Now())
	}
	return b.finish
}

// pacedBody is a request body with a minimum rate. Only the time spent waiting for the client is measured.
type pacedBody struct {
	io.ReadCloser
	controller *http.ResponseController
	pace       pace
	isDrained  bool // when the response starts, net/http reads the rest of the body so that the connection can be reused

	mu        sync.Mutex // a transport may still be reading after the handler has returned
	remaining time.Duration
	ended     bool // the request has ended, so deadlines must no longer be set
}

// Read implements [io.Reader]. If the client is too slow, the error is [os.ErrDeadlineExceeded].
func (b *pacedBody) Read(p []byte) (int, error) {
	start := time.Now()
	b.setDeadline(start)
	n, err := b.ReadCloser.Read(p)
	b.recordWait(time.Since(start), n, err)
	return n, err
}

// setDeadline sets the deadline for a read if the connection supports deadlines.
func (b *pacedBody) setDeadline(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.controller.SetReadDeadline(now.Add(b.remaining))
	}
}

// recordWait updates the remaining wait after a read. Unless net/http is draining the body, it clears the deadline, which might
// otherwise expire while the body is being processed.
func (b *pacedBody) recordWait(d time.Duration, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	earned := time.Duration(n) * time.Second / time.Duration(b.pace.rate)
	b.remaining = min(b.remaining-d+earned, b.pace.maxWait)
	if !b.ended && !b.isDrained && !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = b.controller.SetReadDeadline(time.Time{})
	}
	b.ended = b.ended || err != nil
}

// finish stops setting deadlines, because the connection may now be used for another request.
func (b *pacedBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

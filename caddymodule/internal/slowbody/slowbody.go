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

// pace is the minimum speed of a request body. A body that arrives byte by byte could occupy its connection for
// hours, and delay a restart, which waits for pending requests.
type pace struct {
	patience time.Duration // maximum time spent waiting for the client
	rate     int64         // bytes that restore one second of patience
}

var (
	// Form is for forms and registrations of at most 64 KiB.
	Form = pace{patience: 10 * time.Second, rate: 16 << 10}

	// FHIR is for resources, which may be large and sent from a phone. It equals the defaults of Apache's
	// mod_reqtimeout.
	FHIR = pace{patience: 20 * time.Second, rate: 500}
)

// Limit makes reads of a request's body fail if it is slower than the pace. The returned function must be called
// before the handler returns.
func (p pace) Limit(w http.ResponseWriter, r *http.Request) (done func()) {
	if _, limited := r.Body.(*pacedBody); limited || r.Body == nil || r.ContentLength == 0 {
		return func() {}
	}
	b := &pacedBody{ReadCloser: r.Body, control: http.NewResponseController(w), pace: p, left: p.patience, drained: r.ProtoMajor == 1}
	r.Body = b
	if b.drained {
		b.wait(time.Now())
	}
	return b.done
}

// pacedBody is a body with a minimum speed. Only time spent waiting for the client counts.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	pace    pace
	drained bool // net/http reads the rest when a response starts, to reuse the connection

	mu   sync.Mutex // a transport may still read after the handler has returned
	left time.Duration
	over bool // the request has ended, so the deadline must not be set
}

// Read implements io.Reader. If the client is too slow, the error is os.ErrDeadlineExceeded.
func (b *pacedBody) Read(p []byte) (int, error) {
	start := time.Now()
	b.wait(start)
	n, err := b.ReadCloser.Read(p)
	b.waited(time.Since(start), n, err)
	return n, err
}

// wait sets the deadline of a read, if the connection supports one.
func (b *pacedBody) wait(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(now.Add(b.left))
	}
}

// waited updates the time left after a read. Unless net/http drains the body, it clears the deadline, which would
// otherwise expire while the body is processed.
func (b *pacedBody) waited(d time.Duration, n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	earned := time.Duration(n) * time.Second / time.Duration(b.pace.rate)
	b.left = min(b.left-d+earned, b.pace.patience)
	if !b.over && !b.drained && !errors.Is(err, os.ErrDeadlineExceeded) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	b.over = b.over || err != nil
}

// done stops setting deadlines, because the connection may serve another request from now on.
func (b *pacedBody) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

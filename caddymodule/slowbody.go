package caddymodule

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// pace is how fast a request's body has to come. One that came a byte at a time would
// hold its connection for hours, and with it a restart, which waits for requests.
type pace struct {
	patience time.Duration // how long we wait for the client
	rate     int64         // how many bytes earn a second of it back
}

var (
	// formPace is for forms and registrations, which have 64 KiB at most.
	formPace = pace{patience: 10 * time.Second, rate: 16 << 10}

	// fhirPace is for resources, which may be large and come from a telephone. It is
	// what Apache's mod_reqtimeout asks of bodies.
	fhirPace = pace{patience: 20 * time.Second, rate: 500}
)

// limit makes a request's body one that has to come at a pace. What it returns is to
// be called before the handler returns.
func (p pace) limit(w http.ResponseWriter, r *http.Request) (done func()) {
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

// pacedBody is a body that has to come at a pace. Only the time counts for which we
// wait for the client: the next handler may take its own.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	pace    pace
	drained bool // net/http reads on in it when an answer begins, to use its connection again

	mu   sync.Mutex // a transport may read on when the handler has returned
	left time.Duration
	over bool // the deadline is no longer ours to set
}

// Read implements io.Reader. When the client is too slow, its error is
// os.ErrDeadlineExceeded.
func (b *pacedBody) Read(p []byte) (int, error) {
	start := time.Now()
	b.wait(start)
	n, err := b.ReadCloser.Read(p)
	b.waited(time.Since(start), n, err)
	return n, err
}

// wait sets the deadline of a read. Not all connections have one.
func (b *pacedBody) wait(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		_ = b.control.SetReadDeadline(now.Add(b.left))
	}
}

// waited counts what a read took and brought. Where net/http does not see to it, there
// is no deadline until the next read: it would end the body while we do other things.
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

// done leaves the deadline as it is. From now on the connection may be another
// request's.
func (b *pacedBody) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
}

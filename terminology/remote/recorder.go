package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Recorder is the [http.ResponseWriter] for a next handler whose answer may be stored. It holds the answer until it is
// whole, so that a broken one can be replaced; beyond its limit it passes the answer on as it comes. Make one with
// [NewRecorder] for each request.
type Recorder struct {
	w       http.ResponseWriter
	limit   int64
	header  http.Header
	status  int
	body    bytes.Buffer
	passing bool  // what comes goes to the client
	failed  error // of writing to the client
}

// nextName stands for the server behind the next handler in texts for clients.
const nextName = "the FHIR server"

// DefaultMaxRecorded is the limit for an answer of a next handler.
const DefaultMaxRecorded = DefaultMaxAnswer

// NewRecorder returns a recorder in front of w that holds at most limit bytes.
func NewRecorder(w http.ResponseWriter, limit int64) *Recorder {
	return &Recorder{w: w, limit: limit, header: w.Header().Clone()}
}

// Recordable returns the request for the next handler, changed so that everybody can share the answer: whole, not
// compressed, and without a condition.
func Recordable(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for _, name := range []string{"Accept-Encoding", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range"} {
		r.Header.Del(name)
	}
	r.Header.Set("Accept-Encoding", "identity") // else a proxy may ask for gzip on its own
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet
	}
	return r
}

// Record has the next handler answer, and returns its error, or one of this package if the handler aborts before
// anything was passed on; after that it goes on aborting.
func (r *Recorder) Record(next func(http.ResponseWriter) error) (err error) {
	defer func() {
		cause := recover()
		aborted, _ := cause.(error)
		switch {
		case cause == nil:
		case errors.Is(aborted, http.ErrAbortHandler) && !r.passing: // as a proxy does when its backend is cut off
			err = fail(nextName, fmt.Errorf("%w: %w", ErrCutShort, http.ErrAbortHandler))
		default:
			panic(cause)
		}
	}()
	return next(r)
}

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header {
	if r.passing {
		return r.w.Header()
	}
	return r.header
}

// WriteHeader implements http.ResponseWriter. It drops informational responses (1xx).
func (r *Recorder) WriteHeader(status int) {
	switch {
	case status == http.StatusSwitchingProtocols:
		r.status = status
		r.pass()
	case status >= 200 && r.status == 0:
		r.status = status
	}
}

// Write implements http.ResponseWriter.
func (r *Recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if !r.passing && int64(r.body.Len()+len(b)) > r.limit {
		r.pass()
	}
	if !r.passing {
		return r.body.Write(b)
	}
	if r.failed != nil {
		return 0, r.failed
	}
	return r.w.Write(b)
}

// pass writes what is held to the client, as everything that follows.
func (r *Recorder) pass() {
	r.passing = true
	header := r.w.Header()
	clear(header)
	maps.Copy(header, r.header)
	r.w.WriteHeader(r.status)
	if r.body.Len() > 0 {
		_, r.failed = r.w.Write(r.body.Bytes())
	}
	r.body = bytes.Buffer{}
}

// FlushError is called by [http.ResponseController]. While the answer is held, there is nothing to flush.
func (r *Recorder) FlushError() error {
	if !r.passing {
		return nil
	}
	return http.NewResponseController(r.w).Flush()
}

// Hijack implements [http.Hijacker].
func (r *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(r.w).Hijack()
	if err == nil {
		r.passing, r.status = true, http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}

// Unwrap returns the writer behind, for deadlines.
func (r *Recorder) Unwrap() http.ResponseWriter { return r.w }

// Answered reports whether there is an answer.
func (r *Recorder) Answered() bool { return r.status != 0 }

// Status returns the status of the answer, or 0.
func (r *Recorder) Status() int { return r.status }

// Passed reports whether any of the answer was passed to the client.
func (r *Recorder) Passed() bool { return r.passing }

var errNotHeld = errors.New("it was passed on")

// Answer returns the recorded answer to the operation with the path, checked. Its error is an [*Error]; Relay may still
// pass on what was recorded.
func (r *Recorder) Answer(operation string) (*Answer, error) {
	answer, err := r.check(operation)
	if err != nil {
		e := fail(nextName, err)
		e.RetryAfter = cache.RetryAfter(r.header, time.Now())
		return nil, e
	}
	return answer, nil
}

func (r *Recorder) check(operation string) (*Answer, error) {
	switch {
	case r.passing:
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, errNotHeld)
	case !r.Answered():
		return nil, fmt.Errorf("%w: there is none", ErrUnreachable)
	}
	if declared := r.header.Get("Content-Length"); declared != "" && declared != strconv.Itoa(r.body.Len()) {
		return nil, fmt.Errorf("%w: %d bytes of %s", ErrCutShort, r.body.Len(), strings.ToValidUTF8(declared, "?"))
	}
	return check(operation, r.status, r.header, bytes.Clone(r.body.Bytes()))
}

// Relay passes on the answer as it was recorded, unless that has been done. A body shorter than it says breaks the
// connection off, as it would without a recorder.
func (r *Recorder) Relay() error {
	if !r.passing {
		r.pass()
	}
	return r.failed
}

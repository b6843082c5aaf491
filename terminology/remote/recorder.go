package remote

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

// Recorder is an [http.ResponseWriter] that buffers one response for validation. Create it with [NewRecorder].
type Recorder struct {
	limit       int64
	header      http.Header
	status      int
	body        bytes.Buffer
	isTruncated bool // the response exceeds the limit
}

// NewRecorder returns a recorder that buffers at most limit bytes.
func NewRecorder(limit int64) *Recorder { return &Recorder{limit: limit, header: make(http.Header)} }

// WithRecordableHeaders returns a copy of a request for the next handler. Its response can be shared, and will be
// complete, uncompressed and unconditional.
func WithRecordableHeaders(r *http.Request) *http.Request {
	r = r.Clone(r.Context())
	for _, name := range []string{"Accept-Encoding", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range", "If-Unmodified-Since", "Range"} {
		r.Header.Del(name)
	}
	r.Header.Set("Accept-Encoding", "identity") // otherwise, a proxy might request gzip
	if r.Method == http.MethodHead {
		r.Method = http.MethodGet
	}
	return r
}

// Record calls the next handler and returns its error. If the handler aborts the response, the error wraps errTruncated.
func (r *Recorder) Record(next func(http.ResponseWriter) error) (err error) {
	defer func() {
		cause := recover()
		if aborted, _ := cause.(error); errors.Is(aborted, http.ErrAbortHandler) { // a proxy aborts when its backend closes the connection
			err = newError(nextHandlerName, fmt.Errorf("%w: %w", errTruncated, http.ErrAbortHandler))
		} else if cause != nil {
			panic(cause)
		}
	}()
	return next(r)
}

// Header implements [http.ResponseWriter].
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter]. It ignores informational responses (1xx).
func (r *Recorder) WriteHeader(status int) {
	if status >= http.StatusOK && r.status == 0 {
		r.status = status
	}
}

// Write implements [http.ResponseWriter]. It buffers bytes up to the limit and returns an error for any more.
func (r *Recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if capacity := r.limit - int64(r.body.Len()); int64(len(b)) > capacity {
		r.isTruncated = true
		r.body.Write(b[:capacity])
		return int(capacity), r.tooLarge()
	}
	return r.body.Write(b)
}

func (r *Recorder) tooLarge() error {
	return fmt.Errorf("%w: more than %d bytes", errTooLarge, r.limit)
}

// FlushError implements the method that [http.ResponseController] calls. It does nothing.
func (r *Recorder) FlushError() error { return nil }

// Status returns the status of the response, or 0 if no response was written.
func (r *Recorder) Status() int { return r.status }

// Body returns the buffered part of the body.
func (r *Recorder) Body() []byte { return r.body.Bytes() }

// IsTruncated reports whether the response exceeds the limit.
func (r *Recorder) IsTruncated() bool { return r.isTruncated }

// Response validates the recorded response of the operation with the given path. Its errors are of type [*Error].
func (r *Recorder) Response(operation string) (*Response, error) {
	response, err := r.check(operation)
	if err != nil {
		e := newError(nextHandlerName, err)
		e.RetryAfter = cache.ParseRetryAfter(r.header, time.Now())
		return nil, e
	}
	return response, nil
}

func (r *Recorder) check(operation string) (*Response, error) {
	switch {
	case r.isTruncated:
		return nil, r.tooLarge()
	case r.status == 0:
		return nil, errNoServer
	}
	if declared := r.header.Get("Content-Length"); declared != "" && declared != strconv.Itoa(r.body.Len()) {
		return nil, fmt.Errorf("%w: %d bytes of %s", errTruncated, r.body.Len(), strings.ToValidUTF8(declared, "?"))
	}
	return newResponse(operation, r.status, r.header, bytes.Clone(r.body.Bytes()))
}

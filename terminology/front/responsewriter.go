package front

import (
	"io"
	"net/http"
)

// responseWriter passes a response to the client and notes its status.
type responseWriter struct {
	http.ResponseWriter
	status  int  // the last one, including those of informational responses (1xx); 0: none
	final   bool // the final response has begun
	dropped bool // the response does not reach the client

	begins  func(status int)      // called before the final response, unless nil
	refused func(status int) bool // reports whether to drop a response, unless nil
}

func (w *responseWriter) WriteHeader(status int) {
	if w.final {
		return
	}
	w.status, w.final = status, status >= http.StatusOK
	if w.final && w.begins != nil {
		w.begins(status)
	}
	w.dropped = w.refused != nil && w.refused(status)
	if !w.dropped {
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.dropped {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// ReadFrom implements io.ReaderFrom, so that files are sent without copying.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	w.WriteHeader(http.StatusOK)
	if w.dropped {
		return io.Copy(io.Discard, r)
	}
	if to, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		return to.ReadFrom(r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// FlushError is called by http.ResponseController. It must not begin the response.
func (w *responseWriter) FlushError() error {
	if w.status == 0 || w.dropped {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *responseWriter) Push(target string, options *http.PushOptions) error {
	if pusher, ok := w.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, options)
	}
	return http.ErrNotSupported
}

// Unwrap returns the writer behind, for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ io.ReaderFrom       = (*responseWriter)(nil)
	_ http.Pusher         = (*responseWriter)(nil)
)

package caddymodule

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-fhir/caddy-fhir/terminology/cache"
)

const (
	// failureWindowTime is the time in which failures of one kind are counted together.
	failureWindowTime = time.Minute

	// maxFailures is how many failures of a kind are logged one by one in that time.
	maxFailures = 10

	// maxFailureKinds bounds how many kinds are told apart.
	maxFailureKinds = 1000
)

// failureLog logs what failed through no fault of the client. Caddy does so only
// where no error route answers: behind `handle_errors`, an outage would leave no trace
// in a log. Of each kind so many failures are logged as a person looks at; how many
// more there were is told when a minute is over.
//
// It is safe for concurrent use.
type failureLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	windows map[string]*failureWindow // by kind
}

// failureWindow counts the failures of a kind for failureWindowTime, from the first.
type failureWindow struct{ written, leftOut int }

func newFailureLog(logger *slog.Logger) *failureLog {
	return &failureLog{logger: logger, windows: map[string]*failureWindow{}}
}

// failureLogged is the request variable that says that its failure is in the log.
const failureLogged = "fhir.failure_logged"

// request logs the cause of an answer of 500 and above, once for each request. The
// query is left out: it may name a person, and hold a token.
func (l *failureLog) request(r *http.Request, err error) {
	status, at := http.StatusInternalServerError, ""
	var failed caddyhttp.HandlerError
	if errors.As(err, &failed) {
		at = failed.Trace
		if failed.StatusCode != 0 {
			status = failed.StatusCode
		}
	}
	var logged *loggedError
	switch {
	case status < http.StatusInternalServerError, errors.As(err, &logged), errors.Is(err, cache.ErrNotKept):
		return
	case caddyhttp.GetVar(r.Context(), failureLogged) != nil:
		return
	}
	caddyhttp.SetVar(r.Context(), failureLogged, true)
	cause := err
	if failed.Err != nil {
		cause = failed.Err
	}
	l.write(strconv.Itoa(status)+" "+at, "request failed", "status", status, "method", r.Method, "path", originalPath(r), "error", cause)
}

// loggedError is an error that is in the log: requests that fail by it need not be.
type loggedError struct{ cause error }

// Error implements error.
func (e *loggedError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e *loggedError) Unwrap() error { return e.cause }

// server logs that a server gave no answer, whether the client hears of that or gets
// an older answer, and returns an error that is known to be in the log.
func (l *failureLog) server(name string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	l.write("server "+name, "a server gave no answer", "server", name, "error", err)
	return &loggedError{err}
}

// write logs a failure, unless there were enough of its kind.
func (l *failureLog) write(kind, message string, attributes ...any) {
	if l.admit(kind) {
		l.logger.Error(message, attributes...)
	}
}

// admit reports whether one more failure of a kind is logged.
func (l *failureLog) admit(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.windows[kind]
	if w == nil && len(l.windows) >= maxFailureKinds {
		return false
	}
	if w == nil {
		w = new(failureWindow)
		l.windows[kind] = w
		time.AfterFunc(failureWindowTime, func() { l.end(kind) })
	}
	if w.written >= maxFailures {
		w.leftOut++
		return false
	}
	w.written++
	return true
}

// end closes a window, and tells how many failures were left out in it.
func (l *failureLog) end(kind string) {
	l.mu.Lock()
	leftOut := l.windows[kind].leftOut
	delete(l.windows, kind)
	l.mu.Unlock()
	if leftOut > 0 {
		l.logger.Error("failures beyond those that are logged one by one", "kind", kind, "left_out", leftOut)
	}
}

package fhirerror

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
)

const (
	failureWindowDuration = time.Minute // period in which failures of the same kind are counted together
	maxLoggedFailures     = 10          // maximum number of failures of a kind that are logged individually per period
	maxFailureKinds       = 1000        // maximum number of different kinds
)

// Log logs failures that the client did not cause. Caddy logs them only if no error route handles them, so with
// `handle_errors`, an outage would not be logged. The first failures of each kind are logged individually; additional ones are
// counted, and their number is logged at the end of the minute. Log is safe for concurrent use.
type Log struct {
	logger *slog.Logger
	proxy  *slog.Logger // logger for errors from reverse_proxy

	mu      sync.Mutex
	windows map[string]*failureWindow // windows by kind
}

// failureWindow counts the failures of a kind during failureWindowDuration, beginning with the first failure.
type failureWindow struct{ logged, omitted int }

// NewLog returns a failure log that writes to a logger.
func NewLog(logger *slog.Logger) *Log {
	return &Log{logger: logger, proxy: logger, windows: map[string]*failureWindow{}}
}

// NewHandlerLog returns the failure log of a handler. Errors of a reverse_proxy that handles the request later are logged under
// the name reverse_proxy, because an unavailable FHIR server is not a failure of fhir_bearer or fhir_expand.
func NewHandlerLog(ctx caddy.Context) *Log {
	l, proxy := NewLog(ctx.Slogger()), new(reverseproxy.Handler)
	l.proxy = fhirbase.NewLogger(ctx, string(proxy.CaddyModule().ID), proxy)
	return l
}

// isFromProxy reports whether reverse_proxy created an error. Trace contains the function that called [caddyhttp.Error].
func isFromProxy(handlerErr caddyhttp.HandlerError) bool {
	return strings.HasPrefix(handlerErr.Trace, "reverseproxy.")
}

// failureLoggedVar is the request variable that is set after the failure of a request has been logged.
const failureLoggedVar = "fhir.failure_logged"

// LogRequestError logs the cause of a response with status 500 or above, once per request. It omits the query, which may
// identify a person or contain a token. It does not log errors from an unavailable or full store, which the store's breaker or
// the watch in modules/stores logs, or failures because the client disconnected.
func (l *Log) LogRequestError(r *http.Request, err error) {
	handlerErr, _ := errors.AsType[caddyhttp.HandlerError](err)
	status := cmp.Or(handlerErr.StatusCode, http.StatusInternalServerError)
	if status < http.StatusInternalServerError || isLoggedElsewhere(err) || hasDisconnected(r, err) || caddyhttp.GetVar(r.Context(), failureLoggedVar) != nil {
		return
	}
	caddyhttp.SetVar(r.Context(), failureLoggedVar, true)
	logger := l.logger
	if isFromProxy(handlerErr) {
		logger = l.proxy
	}
	l.write(logger, strconv.Itoa(status)+" "+handlerErr.Trace, "request failed",
		"status", status, "method", r.Method, "path", fhirbase.OriginalPath(r), "error", cmp.Or(handlerErr.Err, err))
}

func hasDisconnected(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && errors.Is(r.Context().Err(), context.Canceled)
}

// loggedElsewhere is an error that is not logged for each failed request, because its origin, such as a store's breaker, logs
// it or because it is not relevant.
type loggedElsewhere interface {
	error
	LoggedElsewhere()
}

func isLoggedElsewhere(err error) bool {
	_, is := errors.AsType[loggedElsewhere](err)
	return is
}

// loggedError is an error that [Log.LogServerError] has logged.
type loggedError struct{ error }

func (e *loggedError) Unwrap() error { return e.error }

// LoggedElsewhere implements loggedElsewhere.
func (*loggedError) LoggedElsewhere() {}

// LogServerError logs that a server did not respond, because the client may get a stale response instead of an error. It
// returns the error wrapped so that it is not logged again.
func (l *Log) LogServerError(name string, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	l.write(l.logger, "server "+name, "server did not respond", "server", name, "error", err)
	return &loggedError{err}
}

// Warn logs client errors that the client cannot detect. Warnings are limited per kind, like failures.
func (l *Log) Warn(kind, message string, attributes ...any) {
	if l.takeLogSlot(kind) {
		l.logger.Warn(message, attributes...)
	}
}

func (l *Log) write(logger *slog.Logger, kind, message string, attributes ...any) {
	if l.takeLogSlot(kind) {
		logger.Error(message, attributes...)
	}
}

// takeLogSlot counts a failure of the given kind and reports whether it may be logged.
func (l *Log) takeLogSlot(kind string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.windows[kind]
	if w == nil && len(l.windows) >= maxFailureKinds {
		return false
	}
	if w == nil {
		w = new(failureWindow)
		l.windows[kind] = w
		time.AfterFunc(failureWindowDuration, func() { l.closeWindow(kind) })
	}
	if w.logged >= maxLoggedFailures {
		w.omitted++
		return false
	}
	w.logged++
	return true
}

// closeWindow removes the window of the given kind and logs the number of omitted failures.
func (l *Log) closeWindow(kind string) {
	l.mu.Lock()
	leftOut := l.windows[kind].omitted
	delete(l.windows, kind)
	l.mu.Unlock()
	if leftOut > 0 {
		l.logger.Error("further failures omitted", "kind", kind, "left_out", leftOut)
	}
}

// failureHandler limits error-level records. Core packages log failures themselves, and during an outage, anyone can cause
// failures.
type failureHandler struct {
	slog.Handler
	limiter *Log
}

// LimitFailures returns a logger that limits failures and uses the message as their kind. It returns nil if logger is nil, as
// during Caddyfile parsing.
func LimitFailures(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return nil
	}
	return slog.New(failureHandler{logger.Handler(), NewLog(logger)})
}

func (h failureHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelError && (hasLoggedError(record) || !h.limiter.takeLogSlot(record.Message)) {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// hasLoggedError reports whether an attribute of the record is a loggedElsewhere error.
func hasLoggedError(record slog.Record) (has bool) {
	record.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		has = ok && isLoggedElsewhere(err)
		return !has
	})
	return has
}

func (h failureHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return failureHandler{h.Handler.WithAttrs(attributes), h.limiter}
}

func (h failureHandler) WithGroup(name string) slog.Handler {
	return failureHandler{h.Handler.WithGroup(name), h.limiter}
}

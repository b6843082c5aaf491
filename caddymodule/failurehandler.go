package caddymodule

import (
	"context"
	"log/slog"
)

// failureHandler passes records on, those at error level within the bound of a
// failureLog: a core logs its failures itself, and anybody may cause them in an outage.
type failureHandler struct {
	slog.Handler
	bound *failureLog
}

// limitFailures returns a logger that writes to another one, but for failures beyond
// those that are logged one by one. Their message is their kind. None is none: while a
// Caddyfile is read, nothing is logged.
func limitFailures(logger *slog.Logger) *slog.Logger {
	if logger == nil {
		return nil
	}
	return slog.New(failureHandler{logger.Handler(), newFailureLog(logger)})
}

// Handle implements slog.Handler.
func (h failureHandler) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelError && !h.bound.admit(record.Message) {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h failureHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return failureHandler{h.Handler.WithAttrs(attributes), h.bound}
}

// WithGroup implements slog.Handler.
func (h failureHandler) WithGroup(name string) slog.Handler {
	return failureHandler{h.Handler.WithGroup(name), h.bound}
}

package fhirbase

import (
	"log/slog"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"
)

// AuditLogger names the audit trail for `include` and `exclude` of Caddy's global option log.
const AuditLogger = "fhir.audit"

// NewLogger returns Caddy's logger, of another module if one is given, without stack traces: Caddy's own leaves them out
// too, but not for what a request logs.
func NewLogger(ctx caddy.Context, name string, of ...caddy.Module) *slog.Logger {
	const never = slog.Level(127)
	return slog.New(zapslog.NewHandler(ctx.Logger(of...).Core(), zapslog.WithName(name), zapslog.AddStacktraceAt(never)))
}

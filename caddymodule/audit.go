package caddymodule

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap/exp/zapslog"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/httporigin"
)

// auditLogger names the audit trail for `include` and `exclude` of Caddy's global option log.
const auditLogger = "fhir.audit"

func newEventLog(ctx caddy.Context) *audit.Log {
	const never = slog.Level(127)
	return audit.NewLog(slog.New(zapslog.NewHandler(ctx.Logger().Core(), zapslog.WithName(auditLogger), zapslog.AddStacktraceAt(never))))
}

func (a *App) audit(ctx context.Context, e audit.Event) {
	metrics.event(ctx, e)
	a.events.Record(ctx, e)
}

func clientNetwork(ctx context.Context) string { return fairqueue.Network(clientIP(ctx)) }

// clientIP is the client's address by Caddy; empty outside of Caddy.
func clientIP(ctx context.Context) string {
	address, _ := caddyhttp.GetVar(ctx, caddyhttp.ClientIPVarKey).(string)
	return address
}

// clientAddress is the client's address. Caddy takes it from a proxy only if trusted_proxies names the proxy.
func clientAddress(r *http.Request) string {
	if address := clientIP(r.Context()); address != "" {
		return address
	}
	return httporigin.Peer(r)
}

package caddymodule

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
)

// Audit records an event in the audit trail, and counts it.
func (a *App) Audit(ctx context.Context, e audit.Event) {
	countEvent(e)
	a.events.Record(ctx, e)
}

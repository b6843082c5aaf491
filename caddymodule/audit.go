package caddymodule

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
)

// refusals are kept over reloads.
var refusals audit.Refusals

// Audit records an event in the audit trail, and counts it.
func (a *App) Audit(ctx context.Context, e audit.Event) {
	countEvent(e)
	refusals.Note(a.Issuer, e)
	a.events.Record(ctx, e)
}

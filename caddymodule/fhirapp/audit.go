package fhirapp

import (
	"context"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
)

// refusals are kept over reloads.
var refusals audit.Refusals

// Audit records an event in the audit trail, and counts it.
func (a *App) Audit(ctx context.Context, e audit.Event) {
	countEvent(e)
	refusals.Note(a.Issuer, e)
	a.events.Record(ctx, e)
}

var events = metrics.NewCounters("authorization_events_total", "Events of the audit trail.", "kind", "outcome", "grant")

// knownGrants are the grant types and response types that become labels.
var knownGrants = append(token.GrantTypes().AtTokenEndpoint(),
	"", "code", "token", "id_token", "id_token token", "code token", "code id_token", "code id_token token")

// countEvent counts an event of the audit trail. A grant, which a client chooses, becomes a label only if it is known.
func countEvent(e audit.Event) {
	grant := e.Grant
	if !slices.Contains(knownGrants, grant) {
		grant = "other"
	}
	events.WithLabelValues(e.Kind, e.Outcome(), grant).Inc()
}

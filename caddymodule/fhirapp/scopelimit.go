package fhirapp

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// parseScopeLimit reads a row of scope_limit.
func parseScopeLimit(d *caddyfile.Dispenser, l *scopelimit.Row) error {
	args := d.RemainingArgs()
	take := func(to *string) {
		if len(args) > 0 {
			*to, args = args[0], args[1:]
		}
	}
	if take(&l.By); l.By == "idp" {
		take(&l.IDP)
		take(&l.By)
	}
	if l.By == "claim" {
		take(&l.Claim)
	}
	if l.By != "any" {
		take(&l.Value)
	}
	l.Scopes = args
	return option.WithLine(d, l.Check())
}

package caddymodule

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// ScopeLimit gives scopes to people.
type ScopeLimit struct {
	// The provider that must say so, or `local` for users here. Default: any of these.
	IDP string `json:"idp,omitempty"`

	// Whom it matches: people by their `group` or a `claim`, or `any`. Required.
	By string `json:"by,omitempty"`

	// The name of a `token_claim` of some provider. Required for `claim`.
	Claim string `json:"claim,omitempty"`

	// The group, or a value of the claim. Required, except for `any`.
	Value string `json:"value,omitempty"`

	// The scopes for records that people may have, such as `user/*.rs`, and those of the site's own. Required.
	Scopes []string `json:"scopes,omitempty"`
}

// parse reads a row, whose words [authorize.ScopeLimit] checks.
func (l *ScopeLimit) parse(d *caddyfile.Dispenser) error {
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
	return option.WithLine(d, authorize.ScopeLimit(*l).Check())
}

func scopeLimits(configured []ScopeLimit) (rows []authorize.ScopeLimit) {
	for _, l := range configured {
		rows = append(rows, authorize.ScopeLimit(l))
	}
	return rows
}

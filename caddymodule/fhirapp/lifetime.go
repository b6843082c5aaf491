package fhirapp

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// lifetime reads a duration within the bounds of a lifetime in [authorize.Config].
func lifetime(name string, to *caddy.Duration) option.Setter {
	return func(d *caddyfile.Dispenser) error {
		if err := option.Duration(to)(d); err != nil {
			return err
		}
		return option.WithLine(d, authorize.CheckLifetime(name, time.Duration(*to)))
	}
}

// lifetimeOrOff reads a lifetime, or the word off as -1.
func lifetimeOrOff(name string, to *caddy.Duration) option.Setter {
	return option.DurationOrOff(to, lifetime(name, to))
}

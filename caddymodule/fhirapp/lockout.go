package fhirapp

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Lockout slows down guessing of passwords, second factors and client secrets: after the free failures, each one doubles
// the wait, starting at 1s. Nobody is locked out for good. A browser in which somebody has signed in before has a separate
// count for their account, so others cannot lock them out.
//
// Addresses are those of clients by Caddy: list proxies in `trusted_proxies`, or all clients behind one share its count.
type Lockout struct {
	// Turn the lockout off. Default: on.
	Off bool `json:"off,omitempty"`

	// How many failures in a row are free for an account, and how many wrong secrets for a client from one network.
	// Default: 10.
	Failures int `json:"failures,omitempty"`

	// How many failures are free for an IP address (IPv6: its /64), whatever the accounts; and, counted separately,
	// how many wrong secrets, whatever the clients. Default: 100.
	AddressFailures int `json:"address_failures,omitempty"`

	// The longest wait; at most 24h. Default: `15m`.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`
}

func (l Lockout) settings() lockout.Policy {
	return lockout.Policy{
		Off: l.Off, Failures: l.Failures, AddressFailures: l.AddressFailures, MaxWait: time.Duration(l.MaxWait),
	}
}

// parse reads a lockout.
func (l *Lockout) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		d.Prev()
		return option.Only("off", &l.Off)(d)
	}
	return option.Block{
		"failures":         option.Number(&l.Failures),
		"address_failures": option.Number(&l.AddressFailures),
		"max_wait":         l.parseMaxWait,
	}.Parse(d)
}

func (l *Lockout) parseMaxWait(d *caddyfile.Dispenser) error {
	if err := option.Duration(&l.MaxWait)(d); err != nil {
		return err
	}
	return option.WithLine(d, l.settings().Check())
}

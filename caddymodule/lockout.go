package caddymodule

import (
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
)

// Lockout slows down who guesses passwords, second factors or clients' secrets: beyond the free
// failures every other one doubles the wait, from a second on. Nobody is ever
// locked out for good, and a browser that somebody signed in in before has a count
// of its own for their account, so that strangers' failures do not keep them out.
//
// Addresses are those that Caddy takes for the client's: behind a proxy, name it
// in `trusted_proxies`, or all who come by it share one count.
type Lockout struct {
	// Count nothing. Default: count.
	Off bool `json:"off,omitempty"`

	// After how many failures in a row an account must wait; and after how many wrong
	// secrets a client, at one network. Default: 10.
	Failures int `json:"failures,omitempty"`

	// After how many failures, for whichever accounts, an IP address (IPv6: its
	// /64) must wait; and after how many wrong secrets, counted apart, for whichever
	// clients. Default: 100.
	AddressFailures int `json:"address_failures,omitempty"`

	// How long the wait can get; at most 24h. Default: `15m`.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`
}

func (l Lockout) settings() lockout.Policy {
	return lockout.Policy{
		Off: l.Off, Failures: l.Failures, AddressFailures: l.AddressFailures, MaxWait: time.Duration(l.MaxWait),
	}
}

// parse reads a lockout. Syntax:
//
//	lockout off
//	lockout {
//		failures <number>
//		address_failures <number>
//		max_wait <duration>
//	}
func (l *Lockout) parse(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		d.Prev()
		return only("off", &l.Off)(d)
	}
	return subdirectives{
		"failures":         number(&l.Failures),
		"address_failures": number(&l.AddressFailures),
		"max_wait":         l.parseMaxWait,
	}.parse(d)
}

func (l *Lockout) parseMaxWait(d *caddyfile.Dispenser) error {
	if err := duration(&l.MaxWait)(d); err != nil {
		return err
	}
	if err := l.settings().Check(); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

package fhirapp

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

// Lockout slows down guessing of passwords, second factors and client secrets: after the free failures, each one doubles
// the wait, from 1s to 15m. No account is locked permanently. A browser with an earlier sign-in has a separate
// count for their account, so others cannot lock them out.
//
// Addresses are those of clients by Caddy: list proxies in `trusted_proxies`, or all clients behind one share its count.
type Lockout struct {
	// Turn the lockout off. Default: on.
	Off bool `json:"off,omitempty"`

	// How many failures in a row are free for an account, and how many wrong secrets for a client from one network. Ten
	// times as many are free for an IP address (IPv6: its /64), whatever the accounts and clients. Default: 10.
	Failures int `json:"failures,omitempty"`
}

func (l Lockout) settings() lockout.Policy { return lockout.Policy{Off: l.Off, Failures: l.Failures} }

// parse reads a number of failures, or the word off.
func (l *Lockout) parse(d *caddyfile.Dispenser) error {
	return option.OrOff(&l.Off, option.Number(&l.Failures))(d)
}

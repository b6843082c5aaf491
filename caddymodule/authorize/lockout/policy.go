package lockout

import (
	"cmp"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Policy says how failed attempts delay further ones. Nobody is locked out for good: each
// failure beyond the free ones doubles the wait, from one second up to MaxWait. The defaults
// allow about a hundred guesses a day for an account, from any number of computers.
//
// A browser in which a person signed in before has its own count for their account (see
// [browser.Devices]), and all such browsers together another, so that others' failures do not
// keep the owner out. Gateways that share
// a store count together.
type Policy struct {
	// Off turns counting off, if something in front of this server does it.
	Off bool

	// Failures is after how many failures in a row an account must wait, and after how many
	// wrong secrets a client in one network. Default: 10.
	Failures int

	// AddressFailures is after how many failures, for any accounts, an IP address (IPv6: its
	// /64) must wait; wrong client secrets are counted apart. A right password does not
	// reset the count: the attacker may have an account. Default: ten times Failures.
	AddressFailures int

	// MaxWait is the longest wait. Default: 15 min; at most 24 h.
	MaxWait time.Duration
}

// Defaults and bounds of [Policy].
const (
	defaultFailures = 10
	defaultMaxWait  = 15 * time.Minute
	longestWait     = 24 * time.Hour

	// countRetention is how long a count is kept after its last wait.
	countRetention = 24 * time.Hour
)

// Complete sets the defaults, and reports what is wrong with the policy.
func (l *Policy) Complete() error {
	l.Failures = cmp.Or(l.Failures, defaultFailures)
	l.AddressFailures = cmp.Or(l.AddressFailures, 10*l.Failures)
	l.MaxWait = cmp.Or(l.MaxWait, defaultMaxWait)
	if l.Failures < 0 || l.AddressFailures < 0 {
		return errors.New("lockout: failures must be above 0")
	}
	return oauth2.CheckLifetime("lockout: max_wait", l.MaxWait, longestWait)
}

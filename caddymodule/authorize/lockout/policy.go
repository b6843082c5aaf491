package lockout

import (
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
)

// Policy slows down who guesses passwords, second factors or clients' secrets. Nobody is ever
// locked out for good: each failure beyond the free ones only doubles the wait,
// from a second up to MaxWait. At the defaults that leaves some hundred guesses
// a day for an account, however many computers they come from.
//
// A browser in which somebody signed in before has a count of its own for that
// account (device.go), so that others' failures do not keep the owner out.
// Across replicas that share a store, the count may be short by the tries that
// run at the very same moment.
type Policy struct {
	// Off counts nothing, for where something in front of this server does.
	Off bool

	// Failures is after how many failures in a row an account must wait; and
	// after how many wrong secrets a client, at one network. Default: [DefaultFailures].
	Failures int

	// AddressFailures is after how many failures, for whichever accounts, an
	// IP address (IPv6: its /64) must wait. A right password does not reset
	// this count: who guesses may have an account. As many wrong secrets it
	// has for whichever clients, counted apart. Default:
	// [DefaultAddressFailures].
	AddressFailures int

	// MaxWait is how long the wait can get. Default: [DefaultMaxWait];
	// at most [LongestWait].
	MaxWait time.Duration
}

// Defaults and bounds of [Policy].
const (
	DefaultFailures        = 10
	DefaultAddressFailures = 100
	DefaultMaxWait         = 15 * time.Minute
	LongestWait            = 24 * time.Hour

	// lockoutMemory is how long after its last wait a count is kept.
	lockoutMemory = 24 * time.Hour
)

// Check says why the bounds cannot be such, if they cannot.
func (l Policy) Check() error { return l.Complete() }

// Complete fills in what may be left out.
func (l *Policy) Complete() error {
	if l.Failures == 0 {
		l.Failures = DefaultFailures
	}
	if l.AddressFailures == 0 {
		l.AddressFailures = DefaultAddressFailures
	}
	if l.MaxWait == 0 {
		l.MaxWait = DefaultMaxWait
	}
	if l.Failures < 0 || l.AddressFailures < 0 {
		return errors.New("lockout: failures must be above 0")
	}
	return oauth2.CheckLifetime("lockout: max_wait", l.MaxWait, LongestWait)
}

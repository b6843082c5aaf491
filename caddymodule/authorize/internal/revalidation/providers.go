package revalidation

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/internal/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/upstream"
)

const (
	// maxFailures is how many answers in a row may be missing until a provider counts as silent;
	// one may be the fault of that person's account.
	maxFailures = 3

	// rest is how long a silent provider is not asked then, so that nobody waits for it.
	rest = 30 * time.Second
)

var errRests = errors.New("the identity provider does not answer, and is not asked again yet")

// providers knows which providers do not answer.
type providers struct {
	accounts *people.Accounts
	logger   *slog.Logger // gets outages, and their ends

	mu    sync.Mutex
	state map[string]state // by key
}

type state struct {
	failures int // in a row
	next     time.Time
}

// silent returns an error if a provider is not to be asked.
func (ps *providers) silent(key string) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if time.Now().Before(ps.state[key].next) {
		return errRests
	}
	return nil
}

// note notes an answer, or that it is missing, and logs when a provider stops answering, and when it does again.
func (ps *providers) note(p *people.Provider, err error) {
	var now state
	answered := err == nil || upstream.Denied(err) || errors.Is(err, upstream.ErrIDToken) || errors.Is(err, upstream.ErrUserInfo) // of one person
	ps.mu.Lock()
	before := ps.state[p.Key]
	if !answered {
		now.failures = before.failures + 1
	}
	if now.failures >= maxFailures {
		now.next = time.Now().Add(rest)
	}
	ps.state[p.Key] = now
	ps.mu.Unlock()
	switch {
	case answered && before.failures > 0:
		ps.logger.Info("the identity provider answers again whether people may still come", "idp", p.Key)
	case !answered && before.failures == 0:
		ps.logger.Warn("the identity provider does not answer whether people may still come: they go on until its last yes is too old",
			"idp", p.Key, "outage", p.Revalidate.Outage, "error", err)
	}
}

// asked returns a provider that is asked, or nil.
func (ps *providers) asked(key string) *people.Provider {
	if p := ps.accounts.Providers[key]; p != nil && p.Revalidate.Interval > 0 {
		return p
	}
	return nil
}

// interval is the shortest of all providers; 0 if none is asked.
func (ps *providers) interval() (shortest time.Duration) {
	for key := range ps.accounts.Providers {
		if p := ps.asked(key); p != nil && (shortest == 0 || p.Revalidate.Interval < shortest) {
			shortest = p.Revalidate.Interval
		}
	}
	return shortest
}

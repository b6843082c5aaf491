package revalidation

import (
	"errors"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const (
	// maxFailures is how many answers in a row may be missing until a provider counts as silent;
	// one may be the fault of that person's account.
	maxFailures = 3

	// rest is the pause in checks of a silent provider, so that requests do not wait for it.
	rest = 30 * time.Second
)

// Result is the outcome of a check with an identity provider.
type Result string

// The results. An answer is a yes or a no.
const (
	Answered   Result = "answered"
	Rejected   Result = "rejected"   // the provider refuses our client: its secret is wrong, or it may not refresh
	Unanswered Result = "unanswered" // no answer, or an answer about no person
)

// Results are all of them.
var Results = []Result{Answered, Rejected, Unanswered}

// Checks are the latest of each provider at this gateway. They outlive a [SignIns]. The zero value has none.
type Checks struct {
	mu    sync.Mutex
	state map[string]state // by the provider's key
}

type state struct {
	failures int // in a row
	next     time.Time
	latest   map[Result]time.Time
	failing  Result // of the latest check; "" if it was answered
}

// note records a result and returns the previous state.
func (c *Checks) note(key string, result Result) (before state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.state[key]
	now := state{latest: map[Result]time.Time{}}
	for _, of := range Results {
		now.latest[of] = before.latest[of]
	}
	now.latest[result] = time.Now()
	if result != Answered {
		now.failing, now.failures = result, before.failures+1
	}
	if now.failures >= maxFailures {
		now.next = time.Now().Add(rest)
	}
	if c.state == nil {
		c.state = map[string]state{}
	}
	c.state[key] = now
	return before
}

func (c *Checks) of(key string) state {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state[key]
}

// resultOf sorts the errors of a check.
func resultOf(err error) Result {
	switch {
	case isAnswer(err):
		return Answered
	case relyingparty.Rejected(err):
		return Rejected
	}
	return Unanswered
}

// ProviderState is how a provider answers.
type ProviderState struct {
	Key       string               `json:"idp"`                 // the provider's name in the configuration
	State     string               `json:"state"`               // ok, suspended, rejected, unanswered, or unchecked before the first check
	Suspended *time.Time           `json:"suspended,omitempty"` // since when
	Latest    map[Result]time.Time `json:"latest,omitempty"`    // checks at this gateway
}

// isAnswer reports whether a provider answered about one person, even with an invalid ID token or userinfo.
func isAnswer(err error) bool {
	return err == nil || relyingparty.Denied(err) || errors.Is(err, relyingparty.ErrIDToken) || errors.Is(err, relyingparty.ErrUserInfo)
}

package revalidation

import (
	"errors"
	"log/slog"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
)

var errRests = errors.New("the identity provider does not answer, and is not asked again yet")

// providers knows which providers do not answer.
type providers struct {
	accounts *people.Accounts
	logger   *slog.Logger // gets outages, and their ends
	checks   *Checks
}

// silent returns an error if a provider is not to be asked.
func (ps *providers) silent(key string) error {
	if time.Now().Before(ps.checks.of(key).next) {
		return errRests
	}
	return nil
}

// note notes an answer, or that it is missing, and logs when a provider stops answering, or begins to reject our client, and
// when it answers again.
func (ps *providers) note(p *people.Provider, err error) {
	result := resultOf(err)
	before := ps.checks.note(p.Key, result)
	switch {
	case result == Answered && before.failing != "":
		ps.logger.Info("the identity provider answers again whether people may still come", "idp", p.Key)
	case result == Rejected && before.failing != Rejected:
		ps.logger.Error("the identity provider rejects the client of this gateway: check client_id and client_secret; people go on until its last yes is too old",
			"idp", p.Key, "client_id", p.ClientID, "outage", p.Revalidate.Outage, "error", err)
	case result == Unanswered && before.failing != Unanswered:
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

package audit

import (
	"slices"
	"sync"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
)

const (
	// maxRefusals is how many are kept of a client, and maxRefused of how many clients.
	maxRefusals = 20
	maxRefused  = 1000
)

// A Refusal is what a client was refused, without whom that was about: for its developer.
type Refusal struct {
	Time        time.Time `json:"time"`                  // when that was
	Kind        string    `json:"kind"`                  // of the [Event]
	Outcome     string    `json:"outcome"`               // the error code
	Interaction string    `json:"interaction,omitempty"` // with the FHIR API
	Reason      string    `json:"reason"`                // in words
	Redirect              // of a refusal because of a redirect URI
}

// Refusals are the last ones of each client of an issuer. The zero value has none. It is safe for concurrent use.
type Refusals struct {
	mu   sync.Mutex // held while those of a client change
	kept boundedcache.Cache[refused, []Refusal]
}

type refused struct{ issuer, clientID string }

// Note keeps an event, if it is a refusal of a client.
func (r *Refusals) Note(issuer string, e Event) {
	if e.ClientID == "" || e.Err == nil || e.LeftOut > 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept.MaxEntries = maxRefused
	whose := refused{issuer, e.ClientID}
	before, _ := r.kept.Get(whose)
	before = before[max(0, len(before)-maxRefusals+1):]
	now := Refusal{time.Now().UTC().Truncate(time.Second), e.Kind, e.Outcome(), loggable(e.Interaction), loggable(e.Err.Error()), e.Redirect}
	r.kept.Put(whose, append(slices.Clone(before), now), 1)
}

// Of returns those of a client, the latest last.
func (r *Refusals) Of(issuer, clientID string) []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := r.kept.Get(refused{issuer, clientID})
	return append([]Refusal{}, found...)
}

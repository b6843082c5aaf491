package stores

import (
	"context"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/replica"
)

// Status describes the store. If several gateways share it, the entries are those of which this one has a copy.
type Status struct {
	Name       string   `json:"name"`                  // of the module
	Entries    int      `json:"entries"`               // including expired ones
	MaxEntries int      `json:"max_entries"`           // its bound
	Lag        *float64 `json:"lag_seconds,omitempty"` // since it was last heard
}

type sizedStore interface {
	// Size returns the number of entries, including expired ones, and its bound, 0 for none. It does not wait for a store elsewhere.
	Size() (entries, bound int)
}

// Status describes the configured store.
func (s *Set) Status() *Status {
	status := new(Status)
	if sized, ok := s.Durable.(sizedStore); ok {
		status.Entries, status.MaxEntries = sized.Size()
	}
	if guest, ok := s.Durable.(caddy.Module); ok {
		status.Name = guest.CaddyModule().ID.Name()
	}
	for _, shared := range s.shared {
		if shared.replica == s.Durable {
			status.Name, status.Lag = shared.name, new(shared.replica.Lag().Seconds())
		}
	}
	return status
}

// Health is how a part of the stores is.
type Health struct {
	Part     string      // its name
	Cause    store.Cause // of the problem
	Problem  error       // nil: it is well
	Warnings []string    // what it works in spite of
}

// Health says how the stores are. It tries them, and does not wait long.
func (s *Set) Health(ctx context.Context) (parts []Health) {
	for i, one := range []store.Store{s.Durable, s.Store} {
		part := []string{"store", "memory"}[i]
		if i > 0 && one == s.Durable {
			break
		}
		problem := s.watched[one].check(ctx)
		parts = append(parts, Health{part, store.CauseOf(problem), problem, s.watched[one].warnings()})
	}
	for _, one := range s.shared {
		var problem error
		if !one.replica.IsCurrent() {
			problem = fmt.Errorf("what other gateways revoke has not been heard for %v", one.replica.Lag().Round(time.Millisecond))
		}
		parts = append(parts, Health{Part: "revocations", Cause: store.CauseUnavailable, Problem: problem})
	}
	return parts
}

var _ sizedStore = (*replica.Replica)(nil)

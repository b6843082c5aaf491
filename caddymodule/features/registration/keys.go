package registration

import (
	"log/slog"
	"net/http"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

// registeredKeys are the key sets of registered clients. They outlive the cached clients, so
// that keys are fetched no more often than [relyingparty.KeySet] allows.
type registeredKeys struct {
	transport http.RoundTripper
	logger    *slog.Logger
	max       int // sets

	mu   sync.Mutex
	sets map[string]registeredKeySet // by client_id
}

// registeredKeySet is valid as long as the client names the same source.
type registeredKeySet struct {
	source string
	keys   *relyingparty.KeySet
}

// get returns the key set of a client, or nil.
func (r *registeredKeys) get(c *client.Client) (*relyingparty.KeySet, error) {
	source := c.JWKSURI + string(c.JWKS)
	if source == "" {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.sets[c.ID]; known.source == source {
		return known.keys, nil
	}
	keys, err := c.NewKeys(r.logger, r.transport)
	if err != nil {
		return nil, err
	}
	if r.sets == nil || len(r.sets) >= r.max { // some of them are of deleted clients
		r.sets = map[string]registeredKeySet{}
	}
	r.sets[c.ID] = registeredKeySet{source, keys}
	return keys, nil
}

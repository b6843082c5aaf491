package signin

import (
	"sync"

	"github.com/patrickmn/go-cache"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
)

const maxIdentities = 1000 // beyond it, people have to start again

// identities keeps, by state, what codes were exchanged for if the sign-in then failed here:
// the provider would not accept the code again. Only the sign-in's browser can use one.
type identities struct {
	mu    sync.Mutex // makes take and the bound atomic
	items *cache.Cache
}

func newIdentities() *identities { return &identities{items: cache.New(pendingLifetime, 0)} }

func (i *identities) keep(state string, identity *relyingparty.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.items.ItemCount() >= maxIdentities {
		i.items.DeleteExpired()
	}
	if i.items.ItemCount() < maxIdentities {
		i.items.SetDefault(state, identity)
	}
}

// take removes and returns the identity of a state, or nil.
func (i *identities) take(state string) *relyingparty.Identity {
	i.mu.Lock()
	defer i.mu.Unlock()
	identity, ok := i.items.Get(state)
	if !ok {
		return nil
	}
	i.items.Delete(state)
	return identity.(*relyingparty.Identity)
}

package flow

import (
	"sync"

	"github.com/patrickmn/go-cache"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/upstream"
)

// maxIdentities bounds how many identities wait for a sign-in to be tried again. Those
// beyond begin anew.
const maxIdentities = 1000

// identities are whom providers named in answers that cannot be sent to them a second
// time, while the sign-in failed here. They are in memory, by the answers' state, and
// lead nowhere without the browser that the sign-in was begun in.
type identities struct {
	mu    sync.Mutex // makes take and the bound atomic
	items *cache.Cache
}

func newIdentities() *identities { return &identities{items: cache.New(awayTime, 0)} }

// keep keeps an identity until the same answer comes again.
func (i *identities) keep(state string, from *upstream.Identity) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.items.ItemCount() >= maxIdentities {
		i.items.DeleteExpired()
	}
	if i.items.ItemCount() < maxIdentities {
		kept := *from
		kept.Tokens = upstream.Tokens{} // nobody asks for them
		i.items.SetDefault(state, &kept)
	}
}

// take returns the identity of an answer that came before, once; nil where there is none.
func (i *identities) take(state string) *upstream.Identity {
	i.mu.Lock()
	defer i.mu.Unlock()
	from, ok := i.items.Get(state)
	if !ok {
		return nil
	}
	i.items.Delete(state)
	return from.(*upstream.Identity)
}

package expand

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
	"github.com/caddy-fhir/caddy-fhir/terminology/dispatch"
)

// endedExpansions is the kind of the entries by which gateways with a shared store tell each other which cached expansions
// are not used any more. The store follows it.
const endedExpansions = "ended-expansions"

// Peers are the gateways that share a store with this one, as far as their cached expansions go.
type Peers struct{ *dispatch.Peers }

func init() {
	stores.Follow(endedExpansions, func(shared store.Store, logger *slog.Logger) stores.Follower {
		p := new(Peers)
		p.Peers = NewPeers(shared, p.end, logger).Peers
		return p
	})
}

// NewPeers lets a gateway tell others by a shared store what has ended, and end what they tell.
func NewPeers(shared store.Store, end func(dispatch.Ending), logger *slog.Logger) *Peers {
	return &Peers{dispatch.NewPeers(dispatch.PeersOptions{
		End: end, Logger: logger,
		Tell: func(ctx context.Context, id string, message []byte, lifetime time.Duration) error {
			return shared.Put(ctx, endedExpansions+":"+id, message, lifetime)
		},
	})}
}

// expansionPeersOf returns those of the app's store; nil if no other gateway shares it.
func expansionPeersOf(ctx caddy.Context) (*Peers, error) {
	app, err := fhirbase.FindAny[App](ctx)
	if err != nil || app == nil {
		return nil, err
	}
	peers, _ := app.Stores().Follower(endedExpansions).(*Peers)
	return peers, nil
}

// end ends what this process has cached and others have ended.
func (p *Peers) end(e dispatch.Ending) {
	Caches.Range(func(_, value any) bool {
		if s, ok := value.(*pooledState); ok && s.peers == p {
			s.End(e)
		}
		return true
	})
}

// Hear ends what the store tells of. It does not wait.
func (p *Peers) Hear(u store.Update) {
	n := dispatch.News{Whole: u.Whole, Asked: u.Heard}
	for _, c := range u.Changes {
		if id, ours := strings.CutPrefix(c.Key, endedExpansions+":"); ours && c.Value != nil {
			n.Messages = append(n.Messages, dispatch.Message{ID: id, Text: c.Value})
		}
	}
	p.Peers.Hear(n)
}

// announce returns how a cache tells the others of what it finds changed; nil if there are none.
func (p *Peers) announce() func(dispatch.Ending) {
	if p == nil {
		return nil
	}
	return p.Announce
}

// End ends cached expansions: here in all caches, which may be in front of the same server, and at the gateways
// that share a store with this one. It returns the number of those here.
func End(e dispatch.Ending) (n int) {
	others := map[*Peers]bool{}
	EachCache(func(c Cache) {
		n += c.End(e)
		if s, ok := c.(*pooledState); ok && s.peers != nil {
			others[s.peers] = true
		}
	})
	for peers := range others {
		peers.Announce(e)
	}
	return n
}

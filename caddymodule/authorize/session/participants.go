package session

import (
	"bytes"
	"context"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// What a participant got, as stored.
var (
	gotIDToken = []byte("ID token")
	gotToken   = []byte("access token")
)

// Participants are the clients that got something in a session.
type Participants struct {
	Clients  *client.Registry // who may take part
	Durable  store.Store      // who takes part
	Lifetime time.Duration    // of a session
}

// Reading returns the call that finds whether a client takes part in a session.
func (p *Participants) Reading(sid, clientID string) *store.Call {
	return &store.Call{Op: store.Get, Key: participantKey(sid, clientID)}
}

// Adding returns the calls that remember that a client got something in a session, given what
// [Participants.Reading] found. Each client has an entry of its own, so that none is lost
// when several are added at once. It is written only if it changes: a write to the durable
// store costs more than the rest of issuing a code.
func (p *Participants) Adding(found *store.Call, idToken bool) []*store.Call {
	switch {
	case bytes.Equal(found.Value, gotIDToken), found.Value != nil && !idToken:
		return nil
	case idToken:
		return []*store.Call{{Op: store.Put, Key: found.Key, Value: gotIDToken, TTL: p.Lifetime}}
	}
	return []*store.Call{{Op: store.Add, Key: found.Key, Value: gotToken, TTL: p.Lifetime}}
}

// list returns the participants of a session: of all clients, or of some.
func (p *Participants) list(ctx context.Context, sid string, clients ...string) (list []participant, err error) {
	if clients == nil {
		if clients, err = p.Clients.IDs(ctx); err != nil {
			return nil, err
		}
	}
	calls := make([]*store.Call, len(clients))
	for i, id := range clients {
		calls[i] = p.Reading(sid, id)
	}
	if err := store.Do(ctx, store.In(p.Durable, calls...)); err != nil {
		return nil, err
	}
	for i, id := range clients {
		got := calls[i].Value
		if got == nil {
			continue
		}
		client, err := p.Clients.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		if client != nil { // else it has been deleted
			list = append(list, participant{client, bytes.Equal(got, gotIDToken), calls[i].Key})
		}
	}
	return list, nil
}

// renewing returns the calls that make the participants last as long as a session that a new
// sign-in prolonged.
func (p *Participants) renewing(ctx context.Context, sid string) (calls []*store.Call, err error) {
	list, err := p.list(ctx, sid)
	for _, participant := range list {
		got := gotToken
		if participant.idToken {
			got = gotIDToken
		}
		calls = append(calls, &store.Call{Op: store.Put, Key: participant.key, Value: got, TTL: p.Lifetime})
	}
	return calls, err
}

// remove removes participants from a session that goes on.
func (p *Participants) remove(ctx context.Context, list []participant) error {
	var calls []*store.Call
	for _, key := range keysOf(list) {
		calls = append(calls, &store.Call{Op: store.Delete, Key: key})
	}
	return store.Do(ctx, store.In(p.Durable, calls...))
}

func keysOf(list []participant) (keys []string) {
	for _, p := range list {
		keys = append(keys, p.key)
	}
	return keys
}

type participant struct {
	client  *client.Client
	idToken bool   // it got one
	key     string // of its entry
}

func participantKey(sid, clientID string) string {
	return store.Key("session-client", sid+" "+clientID)
}

package session

import (
	"bytes"
	"context"
	"errors"
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

// Add remembers that a client got something in a session. Each client has an entry of its
// own, so that none is lost when several are added at once. It is written only if it
// changes: a write to the durable store costs more than the rest of issuing a code.
func (p *Participants) Add(ctx context.Context, sid, clientID string, idToken bool) error {
	key := participantKey(sid, clientID)
	got, err := p.Durable.Get(ctx, key)
	switch {
	case err == nil && (bytes.Equal(got, gotIDToken) || !idToken):
		return nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case idToken:
		return p.Durable.Put(ctx, key, gotIDToken, p.Lifetime)
	}
	if err = p.Durable.Add(ctx, key, gotToken, p.Lifetime); errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

func (p *Participants) list(ctx context.Context, sid string) ([]participant, error) {
	var list []participant
	for _, client := range p.Clients.Configured {
		found, err := p.find(ctx, sid, client)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// find returns a client as the participant of a session, if it is one.
func (p *Participants) find(ctx context.Context, sid string, client *client.Client) ([]participant, error) {
	got, err := p.Durable.Get(ctx, participantKey(sid, client.ID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []participant{{client, bytes.Equal(got, gotIDToken)}}, nil
}

// renew makes the participants last as long as a session that a new sign-in prolonged.
func (p *Participants) renew(ctx context.Context, sid string) error {
	list, err := p.list(ctx, sid)
	for _, participant := range list {
		got := gotToken
		if participant.idToken {
			got = gotIDToken
		}
		if err := p.Durable.Put(ctx, participantKey(sid, participant.client.ID), got, p.Lifetime); err != nil {
			return err
		}
	}
	return err
}

type participant struct {
	client  *client.Client
	idToken bool // it got one
}

func participantKey(sid, clientID string) string {
	return store.Key("session-client", sid+" "+clientID)
}

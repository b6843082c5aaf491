package session

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// What the store holds of a client in a session.
var (
	noteIDToken = []byte("ID token")
	noteToken   = []byte("access token")
)

// Participants are the clients that got something in a session.
type Participants struct {
	Clients  *client.Registry // who may take part
	Durable  store.Store      // of who does
	Lifetime time.Duration    // of a session
}

// Join remembers that a client is given something in a session. Each has
// an entry of its own, so that several at once do not lose one another's; and each
// once, because a write to the durable store costs more than all else that a code does.
func (p *Participants) Join(ctx context.Context, sid, clientID string, idToken bool) error {
	key := clientKey(sid, clientID)
	noted, err := p.Durable.Get(ctx, key)
	switch {
	case err == nil && (bytes.Equal(noted, noteIDToken) || !idToken):
		return nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case idToken:
		return p.Durable.Put(ctx, key, noteIDToken, p.Lifetime)
	}
	if err = p.Durable.Add(ctx, key, noteToken, p.Lifetime); errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// clientsOf returns the clients that got something in a session.
func (p *Participants) clientsOf(ctx context.Context, sid string) ([]clientNote, error) {
	var notes []clientNote
	for _, client := range p.Clients.Configured {
		note, err := p.noteOf(ctx, sid, client)
		if err != nil {
			return nil, err
		}
		notes = append(notes, note...)
	}
	return notes, nil
}

// noteOf returns the note of a client in a session, if there is one.
func (p *Participants) noteOf(ctx context.Context, sid string, client *client.Client) ([]clientNote, error) {
	value, err := p.Durable.Get(ctx, clientKey(sid, client.ID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []clientNote{{client, bytes.Equal(value, noteIDToken)}}, nil
}

// keepClients lets the notes of a session last as long as the session, which a
// new sign-in makes last longer.
func (p *Participants) keepClients(ctx context.Context, sid string) error {
	notes, err := p.clientsOf(ctx, sid)
	for _, note := range notes {
		value := noteToken
		if note.idToken {
			value = noteIDToken
		}
		if err := p.Durable.Put(ctx, clientKey(sid, note.client.ID), value, p.Lifetime); err != nil {
			return err
		}
	}
	return err
}

// clientNote says that a client got something in a session.
type clientNote struct {
	client  *client.Client
	idToken bool
}

func clientKey(sid, clientID string) string { return store.Key("session-client", sid+" "+clientID) }

package factor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// lifetime is that of what is enrolled, from its latest change or use.
const lifetime = 20 * 365 * 24 * time.Hour

// Enrolment is what a person enrolled by themself, as stored.
type Enrolment struct {
	App      *App      `json:"app,omitempty"`      // their authenticator app
	Recovery [][]byte  `json:"recovery,omitempty"` // hashes of the unused recovery codes
	Handle   []byte    `json:"handle,omitempty"`   // the user handle of all their passkeys
	Passkeys []Passkey `json:"passkeys,omitempty"` // oldest first
}

// any reports whether the person has enrolled a factor. Recovery codes alone are none.
func (e *Enrolment) any() bool { return e.App != nil || len(e.Passkeys) > 0 }

// Enrolments stores what people enrolled, sealed, so that who can write to the store can
// neither read their keys nor add one.
type Enrolments struct {
	Durable store.Store     // holds them
	Keys    keyring.Storing // seal them
}

func enrolmentKey(user string) string { return store.Key("factors", user) }

// Load returns what a person enrolled, which may be nothing.
func (es *Enrolments) Load(ctx context.Context, user string) (*Enrolment, error) {
	stored, err := es.Durable.Get(ctx, enrolmentKey(user))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("reading what %q enrolled: %w", user, err)
	}
	return es.open(ctx, user, stored)
}

func (es *Enrolments) open(ctx context.Context, user string, stored []byte) (*Enrolment, error) {
	if stored == nil {
		return new(Enrolment), nil
	}
	text, err := es.Keys.UnsealStored(ctx, string(stored), enrolmentKey(user))
	var e *Enrolment
	if err == nil {
		e, err = store.FromJSON[Enrolment]([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("reading what %q enrolled: %w", user, err)
	}
	return e, nil
}

// change changes what a person enrolled, unless do returns an error. After a concurrent
// change, do runs again. It reads in a step, as a gateway's copy may be late.
func (es *Enrolments) change(ctx context.Context, user string, do func(*Enrolment) error) error {
	for ctx.Err() == nil {
		stored, err := store.Values(ctx, es.Durable, enrolmentKey(user))
		var e *Enrolment
		if err == nil {
			e, err = es.open(ctx, user, stored[0])
		}
		if err == nil {
			err = do(e)
		}
		if err == nil {
			err = es.save(ctx, user, e, stored[0])
		}
		if !store.Lost(err) {
			return err
		}
	}
	return ctx.Err()
}

func (es *Enrolments) save(ctx context.Context, user string, e *Enrolment, stored []byte) error {
	text, err := store.ToJSON(e)
	if err != nil {
		return err
	}
	sealed, err := es.Keys.SealStored(ctx, string(text), enrolmentKey(user))
	if err != nil {
		return err
	}
	if stored == nil {
		return es.Durable.Add(ctx, enrolmentKey(user), []byte(sealed), lifetime)
	}
	return es.Durable.Swap(ctx, enrolmentKey(user), stored, []byte(sealed), lifetime)
}

// Reset removes all that a person enrolled, and reports whether there was anything. It does
// not have to read it: the key that sealed it may be lost.
func (es *Enrolments) Reset(ctx context.Context, user string) (bool, error) {
	_, err := es.Durable.Take(ctx, enrolmentKey(user))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

package factor

import (
	"context"
	"encoding/json"
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
	e, _, err := es.load(ctx, user)
	return e, err
}

// load also returns the stored form; nil if there is none.
func (es *Enrolments) load(ctx context.Context, user string) (*Enrolment, []byte, error) {
	e := new(Enrolment)
	stored, err := es.Durable.Get(ctx, enrolmentKey(user))
	if errors.Is(err, store.ErrNotFound) {
		return e, nil, nil
	}
	var text string
	if err == nil {
		text, err = es.Keys.UnsealStored(ctx, string(stored), enrolmentKey(user))
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), e)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading what %q enrolled: %w", user, err)
	}
	return e, stored, nil
}

// change changes what a person enrolled, unless do returns an error. After a concurrent
// change, do runs again.
func (es *Enrolments) change(ctx context.Context, user string, do func(*Enrolment) error) error {
	for ctx.Err() == nil {
		e, stored, err := es.load(ctx, user)
		if err == nil {
			err = do(e)
		}
		if err == nil {
			err = es.save(ctx, user, e, stored)
		}
		if !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrChanged) {
			return err
		}
	}
	return ctx.Err()
}

func (es *Enrolments) save(ctx context.Context, user string, e *Enrolment, stored []byte) error {
	text, err := json.Marshal(e)
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

package consent

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// lifetime is how long a person is not asked again.
	lifetime = 365 * 24 * time.Hour

	// maxItems bounds the items of a client that asks for another search scope each time.
	// Beyond it, only the latest answer is remembered.
	maxItems = 100
)

// Consent is what a person allows a client, as stored. Its items are scopes as the client asks
// for them, and claims requested by name as claim:<name>.
type Consent struct {
	User     string              `json:"user"`               // the sub
	ClientID string              `json:"client_id"`          // of the client
	Seen     []string            `json:"seen"`               // items that the person was asked for
	Granted  []string            `json:"granted"`            // those of them that they allowed
	Narrowed map[string][]string `json:"narrowed,omitempty"` // the narrower scopes that they allowed instead of others
	Until    time.Time           `json:"until,omitzero"`     // when offline_access ends; zero if they did not say
	At       time.Time           `json:"at"`                 // when they were last asked
}

// Consents stores consents.
type Consents struct {
	Durable     store.Store             // holds them
	Revocations *revocation.Revocations // void access tokens when consent is withdrawn
}

func consentKey(user, clientID string) string { return store.Key("consent", user+"\x00"+clientID) }

// Load returns what a person allows a client, or nil if they were not asked.
func (cs *Consents) Load(ctx context.Context, user, clientID string) (*Consent, error) {
	value, err := cs.Durable.Get(ctx, consentKey(user, clientID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return cs.decode(value)
}

// Reading returns the call that reads what a person allows a client in a step; see
// [Consents.Read].
func (cs *Consents) Reading(user, clientID string) *store.Call {
	return &store.Call{Op: store.Get, Key: consentKey(user, clientID)}
}

// Read returns what the call of [Consents.Reading] found.
func (cs *Consents) Read(found *store.Call) (*Consent, error) { return cs.decode(found.Value) }

func (cs *Consents) decode(value []byte) (*Consent, error) {
	c, err := store.FromJSON[Consent](value)
	if c != nil {
		c.lapse(store.Now(cs.Durable))
	}
	return c, err
}

// Given is all that a person allows, in the order of their answers.
func (c *Consent) Given() (scopes []string) {
	for _, item := range c.Seen {
		scopes = append(scopes, c.of(item)...)
	}
	return scopes
}

// Covers reports whether a person allows all of a scope.
func (c *Consent) Covers(scope []string) bool { return covers(c.Given(), scope) }

// Remember stores what a person answered, beside earlier answers to other questions.
func (cs *Consents) Remember(ctx context.Context, user, clientID string, a Answer) error {
	c, err := cs.Load(ctx, user, clientID)
	if err != nil {
		return err
	}
	if c == nil {
		c = &Consent{User: user, ClientID: clientID}
	}
	c.add(a)
	c.At = store.Now(cs.Durable).UTC()
	value, err := store.ToJSON(c)
	if err != nil {
		return err
	}
	return cs.Durable.Put(ctx, consentKey(user, clientID), value, lifetime)
}

// Withdraw reports whether a person now gives less of an item than before, and if so ends the
// client's access tokens. Its codes and refresh tokens end unless the consent still
// [Consent.Covers] them.
func (cs *Consents) Withdraw(ctx context.Context, client *client.Client, user string, a Answer) (bool, error) {
	if !client.RequiresConsent() {
		return false, nil
	}
	earlier, err := cs.Load(ctx, user, client.ID)
	if earlier == nil || err != nil {
		return false, err
	}
	isLess := func(g Given) bool { return !covers(g.Scopes, earlier.of(g.Item)) }
	if !slices.ContainsFunc(a.Given, isLess) {
		return false, nil
	}
	return true, cs.Revocations.CutOff(ctx, revocation.ConsentCutoff(user, client.ID))
}

package consent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

const (
	// consentLifetime is how long a person is not asked again.
	consentLifetime = 365 * 24 * time.Hour

	// maxConsentItems is how many items are remembered of a person and a client;
	// beyond, the latest approval alone is. A client may have a scope for each
	// search, and ask for another each time.
	maxConsentItems = 100
)

// Consent is what a person let a client have, as the durable store keeps it. It
// speaks of items: scopes, and claims asked for by name as claim:<name>.
type Consent struct {
	User     string    `json:"user"`      // the sub
	ClientID string    `json:"client_id"` // of the client
	Seen     []string  `json:"seen"`      // what the person was asked for
	Granted  []string  `json:"granted"`   // and what of it they allowed
	At       time.Time `json:"at"`        // when they were asked last
}

// Consents are what people let clients have, where they are asked.
type Consents struct {
	Durable     store.Store             // where it is remembered
	Revocations *revocation.Revocations // what a person takes back ends
}

func consentKey(user, clientID string) string { return store.Key("consent", user+"\x00"+clientID) }

// Load returns what a person let a client have, or nil if they were not asked.
func (cs *Consents) Load(ctx context.Context, user, clientID string) (*Consent, error) {
	value, err := cs.Durable.Get(ctx, consentKey(user, clientID))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := new(Consent)
	return c, json.Unmarshal(value, c)
}

// Covers says whether a person still allows all of what they granted once: they
// may have been asked again since, and have taken something out.
func (c *Consent) Covers(scope []string) bool {
	return !slices.ContainsFunc(scope, func(scope string) bool { return !slices.Contains(c.Granted, scope) })
}

// Remember adds to what is known of a person's mind.
func (cs *Consents) Remember(ctx context.Context, user, clientID string, items, granted []string) error {
	c, err := cs.Load(ctx, user, clientID)
	if err != nil {
		return err
	}
	if c == nil {
		c = &Consent{User: user, ClientID: clientID}
	}
	asked := func(item string) bool { return slices.Contains(items, item) }
	c.Seen = append(slices.DeleteFunc(c.Seen, asked), items...)
	c.Granted = append(slices.DeleteFunc(c.Granted, asked), granted...)
	if len(c.Seen) > maxConsentItems {
		c.Seen, c.Granted = items, granted
	}
	c.At = time.Now().UTC()
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return cs.Durable.Put(ctx, consentKey(user, clientID), value, consentLifetime)
}

// TakeBack reports whether a person now refuses what they allowed before, and ends the
// client's access tokens if they do. Its codes and refresh tokens end where they go
// beyond what is still allowed (see stillConsented).
func (cs *Consents) TakeBack(ctx context.Context, client *client.Client, user string, items, granted []string) (bool, error) {
	if !client.RequiresConsent() {
		return false, nil
	}
	earlier, err := cs.Load(ctx, user, client.ID)
	if earlier == nil || err != nil {
		return false, err
	}
	refused := func(item string) bool { return slices.Contains(items, item) && !slices.Contains(granted, item) }
	if !slices.ContainsFunc(earlier.Granted, refused) {
		return false, nil
	}
	return true, cs.Revocations.CutOff(ctx, revocation.ConsentCutoff(user, client.ID))
}

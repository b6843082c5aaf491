package consent

import (
	"context"
	"encoding/json"
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

// Consent is what a person allows a client, as stored. Its items are scopes, and claims
// requested by name as claim:<name>.
type Consent struct {
	User     string    `json:"user"`      // the sub
	ClientID string    `json:"client_id"` // of the client
	Seen     []string  `json:"seen"`      // items that the person was asked for
	Granted  []string  `json:"granted"`   // those of them that they allowed
	At       time.Time `json:"at"`        // when they were last asked
}

// Consents stores consents.
type Consents struct {
	Durable     store.Store             // holds them
	Revocations *revocation.Revocations // void access tokens when consent is withdrawn
}

func consentKey(user, clientID string) string { return store.Key("consent", user+"\x00"+clientID) }

// Load returns what a person allows a client, or nil if they were not asked.
func (cs *Consents) Load(ctx context.Context, user, clientID string) (*Consent, error) {
	return store.GetJSON[Consent](ctx, cs.Durable, consentKey(user, clientID))
}

// Covers reports whether a person allows all of a scope.
func (c *Consent) Covers(scope []string) bool {
	return !slices.ContainsFunc(scope, func(scope string) bool { return !slices.Contains(c.Granted, scope) })
}

// Remember stores which of the items a person granted, beside earlier answers to others.
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
	if len(c.Seen) > maxItems {
		c.Seen, c.Granted = items, granted
	}
	c.At = time.Now().UTC()
	value, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return cs.Durable.Put(ctx, consentKey(user, clientID), value, lifetime)
}

// Withdraw reports whether a person now refuses an item that they granted before, and if so
// ends the client's access tokens. Its codes and refresh tokens end unless the consent still
// [Consent.Covers] them.
func (cs *Consents) Withdraw(ctx context.Context, client *client.Client, user string, items, granted []string) (bool, error) {
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

package consent

import (
	"context"
	"errors"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Consent is what a person allows a client, as stored.
type Consent struct {
	User      string      `json:"user"`      // the sub
	ClientID  string      `json:"client_id"` // of the client
	Approvals []*Approval `json:"approvals"` // by patient, the latest last

	Between Between `json:"between,omitzero"` // whom it is, of those that had the names
}

// Between are the generations of a person and a client.
type Between struct {
	User   oauth2.Generation `json:"user,omitempty"`   // of the person
	Client oauth2.Generation `json:"client,omitempty"` // of the client
}

// About returns what counts for a request; nil if the person was not asked.
func (c *Consent) About(about About) *Approval {
	if c == nil {
		return nil
	}
	var unclear *Approval
	for _, a := range c.Approvals {
		switch {
		case !a.isAbout(about):
		case !a.Unclear:
			return a
		default:
			unclear = a
		}
	}
	return unclear
}

// put keeps an approval in place of what counted for a request.
func (c *Consent) put(about About, a *Approval) {
	c.Approvals = append(slices.DeleteFunc(c.Approvals, func(old *Approval) bool { return old.isAbout(about) }), a)
	items := 0
	for i, kept := range slices.Backward(c.Approvals) {
		if items += len(kept.Seen); items > maxAllItems || len(c.Approvals)-i > maxPatients {
			c.Approvals = c.Approvals[i+1:]
			return
		}
	}
}

// Consents stores consents.
type Consents struct {
	Durable     store.Store             // holds them
	Revocations *revocation.Revocations // void access tokens when consent is withdrawn

	// Between says who has a sub and a client_id now.
	Between func(user, clientID string) Between
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
	if c == nil || err != nil {
		return nil, err
	}
	now := cs.Between(c.User, c.ClientID)
	if c.Between.User.IsAnother(now.User) || c.Between.Client.IsAnother(now.Client) {
		return nil, nil
	}
	if c.Approvals == nil {
		earlier, err := store.FromJSON[Approval](value)
		if err != nil {
			return nil, err
		}
		earlier.Unclear = true
		c.Approvals = []*Approval{earlier}
	}
	at := store.Now(cs.Durable)
	c.Approvals = slices.DeleteFunc(c.Approvals, func(a *Approval) bool { return a == nil || !at.Before(a.Ends()) })
	for _, a := range c.Approvals {
		a.lapse(at)
	}
	return c, nil
}

// Remember stores what a person answered to a request, beside earlier answers to other
// questions.
func (cs *Consents) Remember(ctx context.Context, user, clientID string, about About, answer Answer) error {
	return cs.change(ctx, user, clientID, about, func(a *Approval) { a.add(answer) })
}

// Decline stores that a person refused a request, so that they are asked the next time. What
// they gave before goes on.
func (cs *Consents) Decline(ctx context.Context, user, clientID string, about About) error {
	return cs.change(ctx, user, clientID, about, func(a *Approval) { a.Declined = true })
}

// change changes what counts for a request.
func (cs *Consents) change(ctx context.Context, user, clientID string, about About, do func(*Approval)) error {
	return cs.alter(ctx, user, clientID, func(stored []byte) ([]byte, error) {
		c, err := cs.decode(stored)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &Consent{User: user, ClientID: clientID}
		}
		a := c.About(about)
		if a == nil {
			a = new(Approval)
		}
		do(a)
		a.Patient, a.Unclear = about.Patient, false
		if !a.Declined || a.At.IsZero() {
			a.At = store.Now(cs.Durable).UTC()
		}
		c.put(about, a)
		c.Between = cs.Between(user, clientID)
		return store.ToJSON(c)
	})
}

// Withdraw reports whether a person now gives less of an item than before, and if so ends the
// client's access tokens. Its codes and refresh tokens end unless the consent still
// [Approval.Covers] them.
func (cs *Consents) Withdraw(ctx context.Context, client *client.Client, user string, about About, answer Answer) (bool, error) {
	if !client.RequiresConsent() {
		return false, nil
	}
	c, err := cs.Load(ctx, user, client.ID)
	earlier := c.About(about)
	if earlier == nil || err != nil {
		return false, err
	}
	isLess := func(g Given) bool { return !covers(g.Scopes, earlier.of(g.Item)) }
	if !slices.ContainsFunc(answer.Given, isLess) {
		return false, nil
	}
	return true, cs.Revocations.CutOff(ctx, revocation.ConsentCutoff(user, client.ID))
}

// Package consent manages the consents of people to clients.
//
// A client requests items, which are scopes and claims. Instead of an entire resource scope, a
// person can allow narrower scopes that the requested scope covers in the sense of smart.Grant:
// by kind of data, by category, or read access only. Consents are stored by item, so that changes
// of kinds and categories do not require new consents.
package consent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Consent is a person's consent to a client, as stored.
type Consent struct {
	User      string      `json:"user"`      // sub of the person
	ClientID  string      `json:"client_id"` // client_id
	Approvals []*Approval `json:"approvals"` // approvals by patient, latest last

	Generations Generations `json:"between,omitzero"` // generations of the person and the client
}

// Generations contains the generations of a person and a client.
type Generations struct {
	User   oauth2.Generation `json:"user,omitempty"`   // generation of the person
	Client oauth2.Generation `json:"client,omitempty"` // generation of the client
}

// ApprovalFor returns the approval that applies to a request; nil if none.
func (c *Consent) ApprovalFor(about Subject) *Approval {
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

// put replaces the approval that applies to a request.
func (c *Consent) put(about Subject, a *Approval) {
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
	Durable     store.Store             // store for consents
	Revocations *revocation.Revocations // revocation of access tokens when consent is withdrawn

	// LoadGenerations returns the current generations of a sub and a client_id.
	LoadGenerations func(user, clientID string) Generations
}

func consentKey(user, clientID string) string { return store.Key("consent", user+"\x00"+clientID) }

// Load returns a person's consent to a client, or nil if none.
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

// ReadCall returns the call that reads a consent in a step; see [Consents.FromCall].
func (cs *Consents) ReadCall(user, clientID string) *store.Call {
	return &store.Call{Op: store.Get, Key: consentKey(user, clientID)}
}

// FromCall returns the consent read by the call of [Consents.ReadCall].
func (cs *Consents) FromCall(found *store.Call) (*Consent, error) { return cs.decode(found.Value) }

func (cs *Consents) decode(value []byte) (*Consent, error) {
	c, err := store.FromJSON[Consent](value)
	if c == nil || err != nil {
		return nil, err
	}
	now := cs.LoadGenerations(c.User, c.ClientID)
	if c.Generations.User.IsAnother(now.User) || c.Generations.Client.IsAnother(now.Client) {
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

// Remember stores a person's answer to a request. Earlier answers about other items are kept.
func (cs *Consents) Remember(ctx context.Context, user, clientID string, about Subject, answer Decision) error {
	return cs.change(ctx, user, clientID, about, func(a *Approval) { a.add(answer) })
}

// Decline records that a person denied a request, so that the next request asks again. Earlier grants remain.
func (cs *Consents) Decline(ctx context.Context, user, clientID string, about Subject) error {
	return cs.change(ctx, user, clientID, about, func(a *Approval) { a.Declined = true })
}

// change modifies the approval that applies to a request.
func (cs *Consents) change(ctx context.Context, user, clientID string, about Subject, do func(*Approval)) error {
	return cs.alter(ctx, user, clientID, func(stored []byte) ([]byte, error) {
		c, err := cs.decode(stored)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &Consent{User: user, ClientID: clientID}
		}
		a := c.ApprovalFor(about)
		if a == nil {
			a = new(Approval)
		}
		do(a)
		a.Patient, a.Unclear = about.Patient, false
		if !a.Declined || a.At.IsZero() {
			a.At = store.Now(cs.Durable).UTC()
		}
		c.put(about, a)
		c.Generations = cs.LoadGenerations(user, clientID)
		return store.ToJSON(c)
	})
}

// Withdraw reports whether a person now allows less of an item than before, and in that case revokes the client's
// access tokens. Codes and refresh tokens are rejected unless the consent still [Approval.Covers] them.
func (cs *Consents) Withdraw(ctx context.Context, client *client.Client, user string, about Subject, answer Decision) (bool, error) {
	if !client.RequiresConsent() {
		return false, nil
	}
	c, err := cs.Load(ctx, user, client.ID)
	earlier := c.ApprovalFor(about)
	if earlier == nil || err != nil {
		return false, err
	}
	isLess := func(g GrantedItem) bool { return !covers(g.Scopes, earlier.of(g.Item)) }
	if !slices.ContainsFunc(answer.Items, isLess) {
		return false, nil
	}
	return true, cs.Revocations.CutOff(ctx, revocation.ConsentCutoff(user, client.ID))
}

const (
	keyPrefix = "consent:"

	// maxConsents is the maximum number of clients with answers per person. Beyond it, the earliest answers are deleted.
	maxConsents = 1000
)

// listOf returns the list of a person's consents. Its items are keys without their prefix.
func (cs *Consents) listOf(user string) store.RecentList {
	return store.RecentList{Store: cs.Durable, Key: store.Key("consents", user), Max: maxConsents, TTL: lifetime}
}

// item returns the list item of a consent.
func item(user, clientID string) string {
	return strings.TrimPrefix(consentKey(user, clientID), keyPrefix)
}

// alter modifies and lists a stored consent. Beyond the limit, the person's earliest consents are deleted.
func (cs *Consents) alter(ctx context.Context, user, clientID string, do func(stored []byte) ([]byte, error)) error {
	list, listed := cs.listOf(user), item(user, clientID)
	for {
		err := store.Alter(ctx, cs.Durable, consentKey(user, clientID), lifetime, do, list.AddCall(listed))
		if !errors.Is(err, store.ErrTooLong) || ctx.Err() != nil {
			return err
		}
		dropped, err := list.Fold(ctx, len(listed))
		if err == nil {
			dropped = slices.DeleteFunc(dropped, func(other string) bool { return other == listed })
			_, err = store.DeleteKeys(ctx, cs.Durable, keysOf(dropped), func(*Consent) bool { return true })
		}
		if err != nil {
			return err
		}
	}
}

func keysOf(items []string) (keys []string) {
	for _, item := range items {
		if key := keyPrefix + item; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Delete deletes consents and returns their number: all of a user, all to a client, or the user's
// consent to the client if both are given.
func (cs *Consents) Delete(ctx context.Context, user, clientID string) (deleted int, err error) {
	named := func(c *Consent) bool {
		return (user == "" || c.User == user) && (clientID == "" || c.ClientID == clientID)
	}
	switch {
	case user != "" && clientID != "":
		return store.DeleteKeys(ctx, cs.Durable, []string{consentKey(user, clientID)}, named)
	case user == "":
		return store.DeleteFunc(ctx, cs.Durable, keyPrefix, named)
	}
	items, err := cs.listOf(user).Items(ctx, len(item("", "")))
	if err != nil {
		return 0, err
	}
	return store.DeleteKeys(ctx, cs.Durable, keysOf(items), named)
}

// Approval is a person's answer to a client regarding one patient, as stored. Its items are scopes
// as requested, and claims requested by name as claim:<name>.
type Approval struct {
	Patient  string              `json:"patient,omitempty"`  // patient id; "" without a patient
	Seen     []string            `json:"seen"`               // requested items
	Granted  []string            `json:"granted"`            // fully allowed items
	Narrowed map[string][]string `json:"narrowed,omitempty"` // narrower scopes allowed instead of an item
	Until    time.Time           `json:"until,omitzero"`     // expiry of offline_access; zero if not chosen
	At       time.Time           `json:"at"`                 // time of the latest answer
	Declined bool                `json:"declined,omitempty"` // the person has since denied a request, so the next request asks again

	// Unclear marks an approval by a release that did not store the patient. It applies only if the
	// patient is unambiguous.
	Unclear bool `json:"unclear,omitempty"`
}

// Subject identifies the subject of a request.
type Subject struct {
	Patient       string // patient id, or ""
	IsOnlyPatient bool   // whether the person has no other patient
}

const (
	// lifetime is the lifetime of an answer.
	lifetime = 365 * 24 * time.Hour

	// maxItems limits the items of a client that requests different search scopes each time. Beyond
	// it, only the latest answer regarding a patient is kept.
	maxItems = 100

	// maxPatients and maxAllItems limit the answers regarding all patients. Beyond them, the earliest are deleted.
	maxPatients = 100
	maxAllItems = 1000
)

// isAbout reports whether an approval applies to a request.
func (a *Approval) isAbout(about Subject) bool {
	if a.Unclear {
		return about.Patient == "" || about.IsOnlyPatient
	}
	return a.Patient == about.Patient
}

// Ends returns the expiry of the approval.
func (a *Approval) Ends() time.Time { return a.At.Add(lifetime) }

// Decision returns a person's earlier answer; false if some items were not requested then. With
// others, these count as allowed and are not treated as denied.
func (a *Approval) Decision(items []string, others bool) (answer Decision, all bool) {
	answer.Until = a.Until
	for _, item := range items {
		switch {
		case slices.Contains(a.Seen, item):
			answer.Items = append(answer.Items, GrantedItem{item, a.of(item)})
		case others && !a.refused(item):
			answer.Items = append(answer.Items, GrantedItem{item, []string{item}})
		default:
			return Decision{}, false
		}
	}
	return answer, true
}

// of returns the allowed scopes of an item.
func (a *Approval) of(item string) []string {
	if slices.Contains(a.Granted, item) {
		return []string{item}
	}
	return a.Narrowed[item]
}

// GrantedScopes returns all allowed scopes, in the order of the answers.
func (a *Approval) GrantedScopes() (scopes []string) {
	for _, item := range a.Seen {
		scopes = append(scopes, a.of(item)...)
	}
	return scopes
}

// Covers reports whether a person allows all of a scope.
func (a *Approval) Covers(scope []string) bool { return covers(a.GrantedScopes(), scope) }

// Permits reports whether a person has denied nothing of a grant's scope. Some items may never have been requested.
func (a *Approval) Permits(items, scope []string) bool {
	var asked, given []string
	for _, item := range items {
		if slices.Contains(a.Seen, item) {
			asked, given = append(asked, item), append(given, a.of(item)...)
		} else {
			given = append(given, item)
		}
	}
	return !slices.ContainsFunc(scope, func(s string) bool {
		return covers(asked, []string{s}) && !covers(given, []string{s})
	})
}

// refused reports whether a person was asked for an item as part of another item and did not allow all of it.
func (a *Approval) refused(item string) bool {
	return covers(a.Seen, []string{item}) && !covers(a.GrantedScopes(), []string{item})
}

// Ticked returns the names of the choices made for an item; false if the item was never requested.
func (a *Approval) Ticked(choice *Choice) (names map[string]bool, asked bool) {
	if a == nil || !slices.Contains(a.Seen, choice.Name) {
		return nil, false
	}
	return choice.Ticked(a.of(choice.Name)), true
}

// add replaces earlier answers to the same items, or all answers if there are too many.
func (a *Approval) add(answer Decision) {
	a.Seen = slices.DeleteFunc(a.Seen, answer.asks)
	if len(a.Seen)+len(answer.Items) > maxItems {
		*a = Approval{Patient: a.Patient}
	}
	a.Granted, a.Declined = slices.DeleteFunc(a.Granted, answer.asks), false
	for _, g := range answer.Items {
		a.Seen = append(a.Seen, g.Item)
		delete(a.Narrowed, g.Item)
		switch {
		case g.IsComplete():
			a.Granted = append(a.Granted, g.Item)
		case len(g.Scopes) > 0:
			a.narrow(g)
		}
	}
	if answer.asks(client.OfflineAccess) {
		a.Until = answer.Until
	}
}

func (a *Approval) narrow(g GrantedItem) {
	if a.Narrowed == nil {
		a.Narrowed = map[string][]string{}
	}
	a.Narrowed[g.Item] = g.Scopes
}

// lapse removes expired offline_access, so that the next request asks again.
func (a *Approval) lapse(now time.Time) {
	if a.Until.IsZero() || now.Before(a.Until) {
		return
	}
	isOffline := func(item string) bool { return item == client.OfflineAccess }
	a.Seen, a.Granted = slices.DeleteFunc(a.Seen, isOffline), slices.DeleteFunc(a.Granted, isOffline)
	a.Until = time.Time{}
}

// GrantedItem is the allowed part of an item: the item itself, narrower scopes, or nothing.
type GrantedItem struct {
	Item   string   // item as requested
	Scopes []string // allowed scopes; for a claim, the allowed claim
}

// IsComplete reports whether the entire item is allowed.
func (g GrantedItem) IsComplete() bool { return slices.Contains(g.Scopes, g.Item) }

// Decision is a person's answer to all requested items.
type Decision struct {
	Items []GrantedItem // by item, in order
	Until time.Time     // expiry of offline_access if allowed; zero if not chosen
}

// ScopesFor returns the allowed scopes of an item.
func (a *Decision) ScopesFor(item string) []string {
	for _, g := range a.Items {
		if g.Item == item {
			return g.Scopes
		}
	}
	return nil
}

// asks reports whether an item was requested.
func (a *Decision) asks(item string) bool {
	return slices.ContainsFunc(a.Items, func(g GrantedItem) bool { return g.Item == item })
}

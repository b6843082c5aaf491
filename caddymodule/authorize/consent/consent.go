// Package consent is about what people allow clients, where they are asked.
//
// A client asks for items, which are scopes and claims. A person who does not want to give a
// scope for resources as a whole gives narrower scopes instead, which the asked one covers in
// the sense of smart.Grant: by kind of data, by category, or for reading alone. Consents are
// remembered by item, so that kinds and categories can change without anybody being asked
// again.
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

const (
	keyPrefix = "consent:"

	// maxConsents is how many clients a person can have answered. Beyond it, the earliest answers are forgotten.
	maxConsents = 1000
)

// listOf is the list of a person's consents: of what follows the prefix of their keys.
func (cs *Consents) listOf(user string) store.RecentList {
	return store.RecentList{Store: cs.Durable, Key: store.Key("consents", user), Max: maxConsents, TTL: lifetime}
}

// item is what a consent is listed as.
func item(user, clientID string) string {
	return strings.TrimPrefix(consentKey(user, clientID), keyPrefix)
}

// alter changes a consent as stored, and lists it. If the person has too many, the earliest are forgotten.
func (cs *Consents) alter(ctx context.Context, user, clientID string, do func(stored []byte) ([]byte, error)) error {
	list, listed := cs.listOf(user), item(user, clientID)
	for {
		err := store.Alter(ctx, cs.Durable, consentKey(user, clientID), lifetime, do, list.Adding(listed))
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

// Delete deletes consents, and returns how many: all of a user, all to a client, or that of the user to the client if both
// are named.
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

// Approval is what a person answered to a client about one patient, as stored. Its items are
// scopes as the client asks for them, and claims requested by name as claim:<name>.
type Approval struct {
	Patient  string              `json:"patient,omitempty"`  // the id; "" if it was about none
	Seen     []string            `json:"seen"`               // items that the person was asked for
	Granted  []string            `json:"granted"`            // those of them that they allowed
	Narrowed map[string][]string `json:"narrowed,omitempty"` // the narrower scopes that they allowed instead of others
	Until    time.Time           `json:"until,omitzero"`     // when offline_access ends; zero if they did not say
	At       time.Time           `json:"at"`                 // when they were last asked
	Declined bool                `json:"declined,omitempty"` // they refused since, and have to be asked

	// Unclear is of a release that did not store the patient. It counts where only one can be
	// meant.
	Unclear bool `json:"unclear,omitempty"`
}

// About is what a request is about.
type About struct {
	Patient string // the id, or "" for none
	Own     bool   // the person has no other patient to choose
}

const (
	// lifetime is how long a person is not asked again.
	lifetime = 365 * 24 * time.Hour

	// maxItems bounds the items of a client that asks for another search scope each time.
	// Beyond it, only the latest answer about a patient is remembered.
	maxItems = 100

	// maxPatients and maxAllItems bound what is remembered of all patients. Beyond them, the
	// earliest answers are forgotten.
	maxPatients = 100
	maxAllItems = 1000
)

// isAbout reports whether an approval counts for a request.
func (a *Approval) isAbout(about About) bool {
	if a.Unclear {
		return about.Patient == "" || about.Own
	}
	return a.Patient == about.Patient
}

// Ends is when the approval is forgotten.
func (a *Approval) Ends() time.Time { return a.At.Add(lifetime) }

// Answer returns what a person answered earlier; false if they were not asked for some of the
// items. Those count as given if others is set, and they are no part of what was refused.
func (a *Approval) Answer(items []string, others bool) (answer Answer, all bool) {
	answer.Until = a.Until
	for _, item := range items {
		switch {
		case slices.Contains(a.Seen, item):
			answer.Given = append(answer.Given, Given{item, a.of(item)})
		case others && !a.refused(item):
			answer.Given = append(answer.Given, Given{item, []string{item}})
		default:
			return Answer{}, false
		}
	}
	return answer, true
}

// of returns what a person gave of an item.
func (a *Approval) of(item string) []string {
	if slices.Contains(a.Granted, item) {
		return []string{item}
	}
	return a.Narrowed[item]
}

// Given is all that a person allows, in the order of their answers.
func (a *Approval) Given() (scopes []string) {
	for _, item := range a.Seen {
		scopes = append(scopes, a.of(item)...)
	}
	return scopes
}

// Covers reports whether a person allows all of a scope.
func (a *Approval) Covers(scope []string) bool { return covers(a.Given(), scope) }

// Permits reports whether a person refused nothing of the scope of a grant, of which they may
// not have been asked for all the items.
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

// refused reports whether a person was asked for an item as a part of another, and did not give
// all of it.
func (a *Approval) refused(item string) bool {
	return covers(a.Seen, []string{item}) && !covers(a.Given(), []string{item})
}

// Ticked returns the names of the choices that a person made of an item; false if they were
// not asked.
func (a *Approval) Ticked(choice *Choice) (names map[string]bool, asked bool) {
	if a == nil || !slices.Contains(a.Seen, choice.Name) {
		return nil, false
	}
	return choice.Ticked(a.of(choice.Name)), true
}

// add replaces earlier answers to the same items, or all if there were too many.
func (a *Approval) add(answer Answer) {
	a.Seen = slices.DeleteFunc(a.Seen, answer.asks)
	if len(a.Seen)+len(answer.Given) > maxItems {
		*a = Approval{Patient: a.Patient}
	}
	a.Granted, a.Declined = slices.DeleteFunc(a.Granted, answer.asks), false
	for _, g := range answer.Given {
		a.Seen = append(a.Seen, g.Item)
		delete(a.Narrowed, g.Item)
		switch {
		case g.IsWhole():
			a.Granted = append(a.Granted, g.Item)
		case len(g.Scopes) > 0:
			a.narrow(g)
		}
	}
	if answer.asks(client.OfflineAccess) {
		a.Until = answer.Until
	}
}

func (a *Approval) narrow(g Given) {
	if a.Narrowed == nil {
		a.Narrowed = map[string][]string{}
	}
	a.Narrowed[g.Item] = g.Scopes
}

// lapse forgets offline_access when it has ended, so that the person is asked again.
func (a *Approval) lapse(now time.Time) {
	if a.Until.IsZero() || now.Before(a.Until) {
		return
	}
	isOffline := func(item string) bool { return item == client.OfflineAccess }
	a.Seen, a.Granted = slices.DeleteFunc(a.Seen, isOffline), slices.DeleteFunc(a.Granted, isOffline)
	a.Until = time.Time{}
}

// Given is what a person gives of an item: the item itself, narrower scopes, or nothing.
type Given struct {
	Item   string   // as asked for
	Scopes []string // instead of it; or the claim
}

// IsWhole reports whether all of the item is given.
func (g Given) IsWhole() bool { return slices.Contains(g.Scopes, g.Item) }

// Answer is what a person gives of all that they were asked for.
type Answer struct {
	Given []Given   // by item, in their order
	Until time.Time // when offline_access ends, if it was given; zero if they do not say
}

// Of returns what is given of an item.
func (a *Answer) Of(item string) []string {
	for _, g := range a.Given {
		if g.Item == item {
			return g.Scopes
		}
	}
	return nil
}

// asks reports whether the person was asked for an item.
func (a *Answer) asks(item string) bool {
	return slices.ContainsFunc(a.Given, func(g Given) bool { return g.Item == item })
}

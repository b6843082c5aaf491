// Package consent manages the consents that people give to clients.
//
// A client requests items, which are scopes and claims. Instead of an entire resource scope, a person can allow narrower scopes
// that the requested scope covers in the sense of smart.Grant: by kind of data, by category, or read access only. Consents are
// stored by item. Therefore, changing the kinds and categories does not require new consents.
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

// Consent contains a person's approvals for a client, as stored.
type Consent struct {
	User      string      `json:"user"`      // sub of the person
	ClientID  string      `json:"client_id"` // client_id of the client
	Approvals []*Approval `json:"approvals"` // one approval per patient, latest last

	Generations Generations `json:"between,omitzero"` // generations of the person and the client at the time of the latest answer
}

// Generations contains the generations of a person and a client.
type Generations struct {
	User   oauth2.Generation `json:"user,omitempty"`   // generation of the person
	Client oauth2.Generation `json:"client,omitempty"` // generation of the client
}

// ApprovalFor returns the approval for a patient context, or nil if there is none.
func (c *Consent) ApprovalFor(patient PatientContext) *Approval {
	if c == nil {
		return nil
	}
	var fallback *Approval
	for _, a := range c.Approvals {
		switch {
		case !a.appliesTo(patient):
		case !a.PatientUnknown:
			return a
		default:
			fallback = a
		}
	}
	return fallback
}

// setApproval replaces the approval for a patient context. Beyond the limits, it deletes the oldest approvals.
func (c *Consent) setApproval(patient PatientContext, a *Approval) {
	c.Approvals = append(slices.DeleteFunc(c.Approvals, func(old *Approval) bool { return old.appliesTo(patient) }), a)
	items := 0
	for i, approval := range slices.Backward(c.Approvals) {
		if items += len(approval.RequestedItems); items > maxTotalItems || len(c.Approvals)-i > maxPatients {
			c.Approvals = c.Approvals[i+1:]
			return
		}
	}
}

// Consents stores consents.
type Consents struct {
	DurableStore store.Store             // store for consents
	Revocations  *revocation.Revocations // revocation of access tokens when consent is withdrawn

	// LoadGenerations returns the current generations of the person with a sub and of the client with a client_id.
	LoadGenerations func(user, clientID string) Generations
}

func consentKey(user, clientID string) string { return store.Key("consent", user+"\x00"+clientID) }

// Load returns a person's consent to a client, or nil if there is none.
func (cs *Consents) Load(ctx context.Context, user, clientID string) (*Consent, error) {
	value, err := cs.DurableStore.Get(ctx, consentKey(user, clientID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return cs.decode(value)
}

// LoadCall returns the call that reads a consent as part of a store step. Decode its result with [Consents.DecodeCall].
func (cs *Consents) LoadCall(user, clientID string) *store.Call {
	return &store.Call{Op: store.Get, Key: consentKey(user, clientID)}
}

// DecodeCall returns the consent read by the call of [Consents.LoadCall].
func (cs *Consents) DecodeCall(found *store.Call) (*Consent, error) { return cs.decode(found.Value) }

func (cs *Consents) decode(value []byte) (*Consent, error) {
	c, err := store.FromJSON[Consent](value)
	if c == nil || err != nil {
		return nil, err
	}
	now := cs.LoadGenerations(c.User, c.ClientID)
	if c.Generations.User.DiffersFrom(now.User) || c.Generations.Client.DiffersFrom(now.Client) {
		return nil, nil
	}
	if c.Approvals == nil {
		earlier, err := store.FromJSON[Approval](value)
		if err != nil {
			return nil, err
		}
		earlier.PatientUnknown = true
		c.Approvals = []*Approval{earlier}
	}
	at := store.Now(cs.DurableStore)
	c.Approvals = slices.DeleteFunc(c.Approvals, func(a *Approval) bool { return a == nil || !at.Before(a.ExpiresAt()) })
	for _, a := range c.Approvals {
		a.expireOfflineAccess(at)
	}
	return c, nil
}

// SaveDecision stores a person's answer to a request. It keeps earlier answers about other items.
func (cs *Consents) SaveDecision(ctx context.Context, user, clientID string, patient PatientContext, decision Decision) error {
	return cs.updateApproval(ctx, user, clientID, patient, func(a *Approval) { a.applyDecision(decision) })
}

// RecordDenial records that a person denied a request. The client's next request asks again. Earlier grants remain.
func (cs *Consents) RecordDenial(ctx context.Context, user, clientID string, patient PatientContext) error {
	return cs.updateApproval(ctx, user, clientID, patient, func(a *Approval) { a.DeniedSince = true })
}

// updateApproval applies do to the approval for a patient context, or to a new one.
func (cs *Consents) updateApproval(ctx context.Context, user, clientID string, patient PatientContext, do func(*Approval)) error {
	return cs.updateStoredConsents(ctx, user, clientID, func(stored []byte) ([]byte, error) {
		c, err := cs.decode(stored)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = &Consent{User: user, ClientID: clientID}
		}
		a := c.ApprovalFor(patient)
		if a == nil {
			a = new(Approval)
		}
		do(a)
		a.Patient, a.PatientUnknown = patient.Patient, false
		if !a.DeniedSince || a.DecidedAt.IsZero() {
			a.DecidedAt = store.Now(cs.DurableStore).UTC()
		}
		c.setApproval(patient, a)
		c.Generations = cs.LoadGenerations(user, clientID)
		return store.ToJSON(c)
	})
}

// RevokeIfNarrowed reports whether a person now allows less of an item than before. If so, it revokes the client's access
// tokens. Codes and refresh tokens are rejected later unless the consent still [Approval.Covers] their scope.
func (cs *Consents) RevokeIfNarrowed(ctx context.Context, client *client.Client, user string, patient PatientContext, decision Decision) (bool, error) {
	if !client.RequiresConsent() {
		return false, nil
	}
	c, err := cs.Load(ctx, user, client.ID)
	earlier := c.ApprovalFor(patient)
	if earlier == nil || err != nil {
		return false, err
	}
	isNarrower := func(g GrantedItem) bool { return !covers(g.Scopes, earlier.scopesFor(g.Item)) }
	if !slices.ContainsFunc(decision.Items, isNarrower) {
		return false, nil
	}
	return true, cs.Revocations.CutOff(ctx, revocation.ConsentCutoffKey(user, client.ID))
}

const (
	keyPrefix = "consent:"

	// maxConsents is the maximum number of clients per person with stored answers. Beyond it, the oldest consents are deleted.
	maxConsents = 1000
)

// consentList returns the list of a person's consents. Its items are store keys without keyPrefix.
func (cs *Consents) consentList(user string) store.RecentList {
	return store.RecentList{Store: cs.DurableStore, Key: store.Key("consents", user), Max: maxConsents, TTL: approvalLifetime}
}

// listItem returns the list item of a consent.
func listItem(user, clientID string) string {
	return strings.TrimPrefix(consentKey(user, clientID), keyPrefix)
}

// updateStoredConsents applies do to the stored consent and lists it. Beyond maxConsents, the oldest consents are deleted.
func (cs *Consents) updateStoredConsents(ctx context.Context, user, clientID string, do func(stored []byte) ([]byte, error)) error {
	list, listed := cs.consentList(user), listItem(user, clientID)
	for {
		err := store.UpdateValue(ctx, cs.DurableStore, consentKey(user, clientID), approvalLifetime, do, list.AddCall(listed))
		if !errors.Is(err, store.ErrTooLong) || ctx.Err() != nil {
			return err
		}
		dropped, err := list.MakeSpace(ctx, len(listed))
		if err == nil {
			dropped = slices.DeleteFunc(dropped, func(other string) bool { return other == listed })
			_, err = store.DeleteKeys(ctx, cs.DurableStore, consentKeys(dropped), func(*Consent) bool { return true })
		}
		if err != nil {
			return err
		}
	}
}

func consentKeys(items []string) (keys []string) {
	for _, item := range items {
		if key := keyPrefix + item; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Delete deletes consents and returns how many it deleted. If only user is set, it deletes all of the user's consents; if only
// clientID is set, all consents to the client; if both are set, the user's consent to the client.
func (cs *Consents) Delete(ctx context.Context, user, clientID string) (deleted int, err error) {
	named := func(c *Consent) bool {
		return (user == "" || c.User == user) && (clientID == "" || c.ClientID == clientID)
	}
	switch {
	case user != "" && clientID != "":
		return store.DeleteKeys(ctx, cs.DurableStore, []string{consentKey(user, clientID)}, named)
	case user == "":
		return store.DeleteFunc(ctx, cs.DurableStore, keyPrefix, named)
	}
	items, err := cs.consentList(user).Items(ctx, len(listItem("", "")))
	if err != nil {
		return 0, err
	}
	return store.DeleteKeys(ctx, cs.DurableStore, consentKeys(items), named)
}

// Approval contains a person's answers to a client regarding one patient, as stored. The items are scopes as requested, and
// claims requested by name in the form claim:<name>.
type Approval struct {
	Patient            string              `json:"patient,omitempty"`  // patient id; "" if the requests had no patient
	RequestedItems     []string            `json:"seen"`               // items that the person was asked for
	FullyGranted       []string            `json:"granted"`            // fully allowed items
	NarrowedScopes     map[string][]string `json:"narrowed,omitempty"` // narrower scopes allowed instead of an item
	OfflineAccessUntil time.Time           `json:"until,omitzero"`     // when offline_access expires; zero if the person chose no expiry
	DecidedAt          time.Time           `json:"at"`                 // time of the latest answer
	DeniedSince        bool                `json:"declined,omitempty"` // the person has since denied a request, so the next request asks again

	// PatientUnknown marks an approval stored by a release that did not record the patient. It applies only if the request has
	// no patient, or the person has only one.
	PatientUnknown bool `json:"unclear,omitempty"`
}

// PatientContext identifies the patient of a request.
type PatientContext struct {
	Patient       string // patient id; "" if the request has no patient
	IsOnlyPatient bool   // whether the person has no other patient
}

const (
	// approvalLifetime is how long an answer remains valid.
	approvalLifetime = 365 * 24 * time.Hour

	// maxItems is the maximum number of items per approval, because a client may request different search scopes each time.
	// Beyond it, only the latest answer regarding the patient is kept.
	maxItems = 100

	// maxPatients and maxTotalItems limit the approvals of a consent. Beyond them, the oldest approvals are deleted.
	maxPatients   = 100
	maxTotalItems = 1000
)

// appliesTo reports whether an approval applies to requests with a patient context.
func (a *Approval) appliesTo(patient PatientContext) bool {
	if a.PatientUnknown {
		return patient.Patient == "" || patient.IsOnlyPatient
	}
	return a.Patient == patient.Patient
}

// ExpiresAt returns the expiry of the approval.
func (a *Approval) ExpiresAt() time.Time { return a.DecidedAt.Add(approvalLifetime) }

// Decision returns a person's earlier decision about items. isComplete is false if the person was not asked for some of them.
// If allowUnrequested is set, these items are treated as allowed, unless they are part of a denied item.
func (a *Approval) Decision(items []string, allowUnrequested bool) (decision Decision, isComplete bool) {
	decision.OfflineAccessUntil = a.OfflineAccessUntil
	for _, item := range items {
		switch {
		case slices.Contains(a.RequestedItems, item):
			decision.Items = append(decision.Items, GrantedItem{item, a.scopesFor(item)})
		case allowUnrequested && !a.isImplicitlyDenied(item):
			decision.Items = append(decision.Items, GrantedItem{item, []string{item}})
		default:
			return Decision{}, false
		}
	}
	return decision, true
}

// scopesFor returns the allowed scopes of an item.
func (a *Approval) scopesFor(item string) []string {
	if slices.Contains(a.FullyGranted, item) {
		return []string{item}
	}
	return a.NarrowedScopes[item]
}

// GrantedScopes returns all allowed scopes, in the order in which their items were answered.
func (a *Approval) GrantedScopes() (scopes []string) {
	for _, item := range a.RequestedItems {
		scopes = append(scopes, a.scopesFor(item)...)
	}
	return scopes
}

// Covers reports whether the person allows every item of a scope.
func (a *Approval) Covers(scope []string) bool { return covers(a.GrantedScopes(), scope) }

// Permits reports whether the person has denied no part of a grant's scope. Items never requested are permitted.
func (a *Approval) Permits(items, scope []string) bool {
	var requested, allowed []string
	for _, item := range items {
		if slices.Contains(a.RequestedItems, item) {
			requested, allowed = append(requested, item), append(allowed, a.scopesFor(item)...)
		} else {
			allowed = append(allowed, item)
		}
	}
	return !slices.ContainsFunc(scope, func(s string) bool {
		return covers(requested, []string{s}) && !covers(allowed, []string{s})
	})
}

// isImplicitlyDenied reports whether a person was asked for an item as part of another item, and did not allow all of it.
func (a *Approval) isImplicitlyDenied(item string) bool {
	return covers(a.RequestedItems, []string{item}) && !covers(a.GrantedScopes(), []string{item})
}

// TickedNames returns the names of the choices ticked for an item; false if the person was not asked for the item.
func (a *Approval) TickedNames(choice *Choice) (names map[string]bool, requested bool) {
	if a == nil || !slices.Contains(a.RequestedItems, choice.Name) {
		return nil, false
	}
	return choice.TickedNames(a.scopesFor(choice.Name)), true
}

// applyDecision replaces earlier answers about the same items. If there would be more than maxItems, it replaces all answers.
func (a *Approval) applyDecision(decision Decision) {
	a.RequestedItems = slices.DeleteFunc(a.RequestedItems, decision.hasItem)
	if len(a.RequestedItems)+len(decision.Items) > maxItems {
		*a = Approval{Patient: a.Patient}
	}
	a.FullyGranted, a.DeniedSince = slices.DeleteFunc(a.FullyGranted, decision.hasItem), false
	for _, g := range decision.Items {
		a.RequestedItems = append(a.RequestedItems, g.Item)
		delete(a.NarrowedScopes, g.Item)
		switch {
		case g.IsComplete():
			a.FullyGranted = append(a.FullyGranted, g.Item)
		case len(g.Scopes) > 0:
			a.setNarrowed(g)
		}
	}
	if decision.hasItem(client.OfflineAccess) {
		a.OfflineAccessUntil = decision.OfflineAccessUntil
	}
}

func (a *Approval) setNarrowed(g GrantedItem) {
	if a.NarrowedScopes == nil {
		a.NarrowedScopes = map[string][]string{}
	}
	a.NarrowedScopes[g.Item] = g.Scopes
}

// expireOfflineAccess removes offline_access after its expiry, so that the next request asks for it again.
func (a *Approval) expireOfflineAccess(now time.Time) {
	if a.OfflineAccessUntil.IsZero() || now.Before(a.OfflineAccessUntil) {
		return
	}
	isOffline := func(item string) bool { return item == client.OfflineAccess }
	a.RequestedItems, a.FullyGranted = slices.DeleteFunc(a.RequestedItems, isOffline), slices.DeleteFunc(a.FullyGranted, isOffline)
	a.OfflineAccessUntil = time.Time{}
}

// GrantedItem is the allowed part of an item: the item itself, narrower scopes, or nothing.
type GrantedItem struct {
	Item   string   // item as requested
	Scopes []string // allowed scopes; for a claim, the claim itself if allowed
}

// IsComplete reports whether the entire item is allowed.
func (g GrantedItem) IsComplete() bool { return slices.Contains(g.Scopes, g.Item) }

// Decision is a person's answer to all requested items.
type Decision struct {
	Items              []GrantedItem // in the order of the request
	OfflineAccessUntil time.Time     // when offline_access expires, if allowed; zero if the person chose no expiry
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

// hasItem reports whether an item was requested.
func (a *Decision) hasItem(item string) bool {
	return slices.ContainsFunc(a.Items, func(g GrantedItem) bool { return g.Item == item })
}

package people

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// storedAccount is a federated person as the [store.Store] keeps them for as long as
// anything refers to them: sessions, codes and tokens only know the id.
type storedAccount struct {
	Provider string   `json:"provider"`
	Issuer   string   `json:"issuer"`
	Subject  string   `json:"subject"`
	Groups   []string `json:"groups,omitempty"`
	Username string   `json:"username,omitempty"`
	User     User     `json:"user"`
}

// ErrNotAllowed refuses a person whom neither the provider's rules nor the client let in.
var ErrNotAllowed = &oauth2.Error{Code: "access_denied", Description: "this person may not sign in here"}

// Accounts are the people who may sign in: local users, and those whom providers name.
type Accounts struct {
	Directory    *Directory           // the local users
	Providers    map[string]*Provider // by key
	ProviderKeys []string             // in the order of the configuration
	Store        store.Store          // what is asked for now
	Durable      store.Store          // what outlives a restart
	FHIRBase     string               // fhirUser claims are absolute URLs below it
	Logger       *slog.Logger         // of claims that are left out

	// Lifetime is how long a sign-in and what it gives at once refer to a federated
	// person, and refreshLifetime how long a refresh token does.
	Lifetime, RefreshLifetime time.Duration
}

// Find returns a person by the sub of their tokens, or nil when they are no
// longer known: removed or disabled here, or come by a provider that is gone or by
// now allows others in.
func (a *Accounts) Find(ctx context.Context, id string) (*User, error) {
	if user := a.Directory.Users[id]; user != nil {
		if user.Disabled {
			return nil, nil
		}
		return user, nil
	}
	stored, err := a.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	stored.User.username, stored.User.groups = stored.Username, stored.Groups
	stored.User.FHIRUser = a.Providers[stored.Provider].fhirUser(stored.Subject, stored.User.FHIRUser)
	return &stored.User, nil
}

// allowedAccount returns what a provider said of a person, or nil when it lets them in no
// more.
func (a *Accounts) allowedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	p := a.Providers[stored.Provider]
	if p == nil || p.Issuer != stored.Issuer || !p.allows(stored.identity()) {
		return nil, nil
	}
	return stored, nil
}

// storedAccount returns what a provider said of a person; nil where it said nothing.
func (a *Accounts) storedAccount(ctx context.Context, id string) (*storedAccount, error) {
	value, err := a.Store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) {
		value, err = a.restoreAccount(ctx, id)
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	stored := new(storedAccount)
	if err == nil {
		err = json.Unmarshal(value, stored)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an account: %w", err)
	}
	return stored, nil
}

func (a *storedAccount) identity() identity { return identity{user: a.User, groups: a.Groups} }

// Admit decides whose account a provider's identity is, if it is let in at all:
// the linked local user's where linking is on and both sides have verified the
// same e-mail address, else the person's own. What the provider said is stored for
// both, so that they can be held to the rules of later on.
func (a *Accounts) Admit(ctx context.Context, p *Provider, id identity) (*User, error) {
	local := a.linked(p, id)
	if local != nil {
		audit.FromContext(ctx).User = local.ID
	}
	if !p.allows(id) || local != nil && local.Disabled {
		return nil, a.turnAway(ctx, p, id)
	}
	a.checkFHIRUser(ctx, p, &id.user)
	stored := storedAccount{Provider: p.Key, Issuer: id.issuer, Subject: id.subject, Username: id.user.username, User: id.user, Groups: id.groups}
	value, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	err = a.Store.Put(ctx, accountKey(id.user.ID), value, a.Lifetime)
	if err == nil {
		err = a.keepFor(ctx, id.user.ID, value, a.Lifetime)
	}
	if err != nil || local != nil {
		return local, err
	}
	id.user.FHIRUser = p.fhirUser(id.subject, id.user.FHIRUser)
	return &id.user, nil
}

// fhirUser is the FHIR resource of the provider's subject: the one that the
// configuration of the moment says, or else what the provider claimed, if that is
// taken.
func (p *Provider) fhirUser(subject, claimed string) string {
	switch {
	case p.FHIRUsers[subject] != "":
		return p.FHIRUsers[subject]
	case p.Claims["fhirUser"] == "":
		return ""
	}
	return claimed
}

// Unlinked says whether a local user who came as a provider's subject could come
// that way no more: the provider is gone, is another one now, does not let them in,
// or leads to somebody else.
func (a *Accounts) Unlinked(ctx context.Context, user *User, provider, subject string) (bool, error) {
	if provider == "" || a.Directory.Users[user.ID] == nil {
		return false, nil
	}
	p := a.Providers[provider]
	if p == nil {
		return true, nil
	}
	return a.UnlinkedAccount(ctx, user, p, accountID(p.Issuer, subject))
}

// UnlinkedAccount says whether a provider's account no longer leads to a local user.
func (a *Accounts) UnlinkedAccount(ctx context.Context, user *User, p *Provider, id string) (bool, error) {
	stored, err := a.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return true, err
	}
	return !p.links(stored.identity(), user), nil
}

// LinkedAccount is the provider's account by which a local user was given something, or
// "".
func (a *Accounts) LinkedAccount(user, provider, subject string) string {
	p := a.Providers[provider]
	if p == nil || a.Directory.Users[user] == nil {
		return ""
	}
	return accountID(p.Issuer, subject)
}

// CheckLinks refuses two local users with one verified address where linking is
// on: a person would be either of them, as it happens.
func (a *Accounts) CheckLinks() error {
	owners := map[string]string{}
	for _, p := range a.Providers {
		for _, user := range a.Directory.Users {
			address := lowered(user.Email)
			if other := owners[address]; p.LinkEmail && user.EmailVerified && other != "" && other != user.ID {
				return fmt.Errorf("users %q and %q have the same verified e-mail address, and idp %q links by it", other, user.ID, p.Key)
			}
			if user.EmailVerified {
				owners[address] = user.ID
			}
		}
	}
	return nil
}

// linked finds the local user with a person's verified e-mail address. That the
// user is disabled is for the caller to see: it must not fall back to an account
// of the person's own.
func (a *Accounts) linked(p *Provider, id identity) *User {
	for _, user := range a.Directory.Users {
		if p.links(id, user) {
			return user
		}
	}
	return nil
}

// links says whether a person of the provider is a local user: no two users can be the
// same (see checkLinks).
func (p *Provider) links(id identity, user *User) bool {
	address, ok := id.verifiedEmail()
	return p.LinkEmail && ok && user.EmailVerified && lowered(user.Email) == lowered(address)
}

// checkFHIRUser makes the reference relative to our FHIR base, or drops one that
// is no reference to a person there.
func (a *Accounts) checkFHIRUser(ctx context.Context, p *Provider, user *User) {
	if user.FHIRUser == "" {
		return
	}
	user.FHIRUser = strings.TrimPrefix(user.FHIRUser, a.FHIRBase+"/")
	if CheckFHIRUser(user.FHIRUser) != nil {
		a.Logger.WarnContext(ctx, "fhirUser of an identity provider is no person on this FHIR server, left out", "idp", p.Key)
		user.FHIRUser = ""
	}
}

// FHIRUser is the absolute URL of the person's FHIR resource.
func (a *Accounts) FHIRUser(user *User) string {
	if user.FHIRUser == "" {
		return ""
	}
	return a.FHIRBase + "/" + user.FHIRUser
}

package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Find returns a person by the sub of their tokens; nil if they may no longer sign in: they
// were removed or disabled, or their provider was removed or does not allow them.
func (a *Accounts) Find(ctx context.Context, id string) (*User, error) {
	switch user := a.Directory.Users[id]; {
	case user != nil && user.Disabled:
		return nil, nil
	case user != nil:
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

// allowedAccount returns a stored account; nil if the provider no longer lets it in.
func (a *Accounts) allowedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	if a.IsConfiguredClient != nil && a.IsConfiguredClient(id) { // since then: see takeSub
		return nil, nil
	}
	p := a.Providers[stored.Provider]
	if p == nil || p.Issuer != stored.Issuer || !p.allows(stored.identity()) {
		return nil, nil
	}
	return stored, nil
}

// Admit returns the user that a provider's identity signs in as: the linked local user, or
// else a person of its own. If they are not let in, the error is [ErrNotAllowed]. The
// identity is stored in both cases, for rules that are configured later.
func (a *Accounts) Admit(ctx context.Context, p *Provider, id identity) (*User, error) {
	audit.FromContext(ctx).Person = a.describe(p.account(id))
	local := a.linked(p, id)
	if local != nil {
		audit.FromContext(ctx).User = local.ID
	}
	if err := admit(ctx, a, p, &id, local); err != nil {
		return nil, err
	}
	a.checkFHIRUser(ctx, p, &id.user)
	value, err := store.ToJSON(p.account(id))
	if err != nil {
		return nil, err
	}
	inUse := &store.Call{Op: store.Put, Key: accountKey(id.user.ID), Value: value, TTL: a.Lifetime}
	err = a.retain(ctx, id.user.ID, value, a.Lifetime, store.In(a.Store, inUse))
	if err != nil || local != nil {
		return local, err
	}
	id.user.FHIRUser = p.fhirUser(id.subject, id.user.FHIRUser)
	return &id.user, nil
}

// account is what is stored of an identity.
func (p *Provider) account(id identity) *storedAccount {
	return &storedAccount{Provider: p.Key, Issuer: id.issuer, Subject: id.subject, Username: id.user.username, User: id.user, Groups: id.groups}
}

// admit applies the rules to a person, and chooses the sub. A linked account goes by that of
// the local user, and stays under the hash.
func admit(ctx context.Context, a *Accounts, p *Provider, id *identity, local *User) error {
	switch {
	case !p.allows(*id):
		return deny(ctx, a, p, *id, p.whyRefused(*id))
	case local != nil && local.Disabled:
		return deny(ctx, a, p, *id, errDisabledHere)
	case local != nil || p.Sub == "":
		return nil
	}
	err := takeSub(ctx, a, id)
	if errors.Is(err, errUnfitSub) {
		return deny(ctx, a, p, *id, fmt.Errorf("%w (claim %s)", err, p.Sub))
	}
	return err
}

// fhirUser is the FHIR resource of a subject: as configured, or as the provider claims if
// that claim is mapped.
func (p *Provider) fhirUser(subject, claimed string) string {
	if p.Claims["fhirUser"] == "" {
		claimed = ""
	}
	return cmp.Or(p.FHIRUsers[subject], claimed)
}

// Unlinked reports whether a local user could no longer sign in as a provider's subject: the
// provider was removed or replaced, does not let them in, or is linked to somebody else.
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

// UnlinkedAccount reports whether a provider's account is no longer linked to a local user.
func (a *Accounts) UnlinkedAccount(ctx context.Context, user *User, p *Provider, id string) (bool, error) {
	stored, err := a.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return true, err
	}
	return !p.links(stored.identity(), user), nil
}

// LinkedAccount returns the id of the provider's account by which a local user signed in, or "".
func (a *Accounts) LinkedAccount(user, provider, subject string) string {
	p := a.Providers[provider]
	if p == nil || a.Directory.Users[user] == nil {
		return ""
	}
	return accountID(p.Issuer, subject)
}

// checkFHIRUser makes the reference relative to our FHIR base, or drops it unless it names a
// person there.
func (a *Accounts) checkFHIRUser(ctx context.Context, p *Provider, user *User) {
	claim := p.Claims["fhirUser"]
	if user.FHIRUser == "" {
		if claim != "" {
			a.Logger.WarnContext(ctx, "the idp sent no fhirUser for this person: tokens with user/ scopes may read nothing", "idp", p.Key, "claim", claim)
		}
		return
	}
	reference := strings.TrimPrefix(user.FHIRUser, a.FHIRBase+"/")
	if user.FHIRUser = reference; CheckFHIRUser(reference) != nil {
		a.Logger.WarnContext(ctx, "fhirUser of an identity provider names nobody on this FHIR server, as Practitioner/42 would; left out", "idp", p.Key, "claim", claim, "value", reference)
		user.FHIRUser = ""
	}
}

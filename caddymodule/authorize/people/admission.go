package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
)

// Find returns a person by the sub of their tokens; nil if they may no longer sign in: they
// were removed or disabled, or their provider was removed or does not allow them.
func (a *Accounts) Find(ctx context.Context, id string) (*User, error) {
	switch user := a.Directory.User(id); {
	case user != nil && user.Disabled:
		return nil, nil
	case user != nil:
		return user, nil
	}
	stored, err := a.allowedAccount(ctx, id)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, a.Directory.known(ctx)
	}
	stored.User.username, stored.User.Groups, stored.User.provider = stored.Username, stored.Groups, stored.Provider
	stored.User.FHIRUser = a.Providers[stored.Provider].fhirUser(stored)
	return &stored.User, nil
}

// allowedAccount returns a stored account; nil if the provider no longer lets it in.
func (a *Accounts) allowedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	if a.Clients != nil && a.Clients.Configured(id) != nil { // since then: see takeSub
		return nil, nil
	}
	p := a.Providers[stored.Provider]
	if p == nil || p.subIssuer() != stored.Issuer || !p.allows(stored.identity()) {
		return nil, nil
	}
	return stored, nil
}

// Admit returns the user that a provider's identity signs in as: the linked local user, or
// else a person of its own. If they are not let in, the error is [ErrNotAllowed]. The
// identity is stored in both cases, for rules that are configured later. If an app needs to know
// who the person is at the FHIR server, they are not let in as long as that cannot be asked.
func (a *Accounts) Admit(ctx context.Context, p *Provider, id identity, needsFHIRUser bool) (*User, error) {
	audit.FromContext(ctx).Person = p.account(id).describe()
	local := a.linked(p, id)
	if local != nil {
		audit.FromContext(ctx).User = local.ID
	}
	if err := admit(ctx, a, p, &id, local); err != nil {
		return nil, err
	}
	found, err := a.resource(ctx, p, &id)
	if err != nil && needsFHIRUser {
		return nil, err
	}
	stored := p.account(id)
	stored.Found = found
	if err := a.put(ctx, id.user.ID, stored); err != nil || local != nil {
		return local, err
	}
	id.user.FHIRUser = p.fhirUser(stored)
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

// fhirUser is the FHIR resource of a person: as configured, or as the provider claims if
// that claim is mapped, or as was found if that is still searched for.
func (p *Provider) fhirUser(a *storedAccount) string {
	var claimed, found string
	if p.Claims["fhirUser"] != "" {
		claimed = a.User.FHIRUser
	}
	if a.Found != nil && slices.Contains(p.FHIRUserSearch, a.Found.By.PersonSearch) {
		found = a.Found.Reference
	}
	return cmp.Or(p.FHIRUsers[a.Subject], claimed, found)
}

// Unlinked reports whether a local user could no longer sign in as a provider's subject: the
// provider was removed or replaced, does not let them in, or is linked to somebody else.
func (a *Accounts) Unlinked(ctx context.Context, user *User, provider, subject string) (bool, error) {
	if provider == "" || a.Directory.User(user.ID) == nil {
		return false, nil
	}
	p := a.Providers[provider]
	if p == nil {
		return true, nil
	}
	return a.UnlinkedAccount(ctx, user, p, accountID(p.subIssuer(), subject))
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
	if p == nil || a.Directory.User(user) == nil {
		return ""
	}
	return accountID(p.subIssuer(), subject)
}

// resource checks who the provider says that the person is at the FHIR server, and returns what a search finds, if
// there is one.
func (a *Accounts) resource(ctx context.Context, p *Provider, id *identity) (*launch.FoundPerson, error) {
	logger := a.Logger.With("idp", p.Key, "subject", id.subject, "user", id.user.username)
	if name := id.user.username; name != "" && !isName(name) {
		logger.WarnContext(ctx, "the user name of a person has control characters: nobody finds them by it")
	}
	if len(id.user.Unread) > 0 {
		logger.WarnContext(ctx, "claims of a person are too long, of another form, or elsewhere, and cannot be read: rules that ask for them deny, or allow nothing", "claims", id.user.Unread)
	}
	claim := p.Claims["fhirUser"]
	switch {
	case id.user.FHIRUser != "":
		a.checkFHIRUser(ctx, claim, &id.user, logger)
	case p.FHIRUsers[id.subject] != "":
	case len(p.FHIRUserSearch) > 0:
		stored, err := a.storedAccount(ctx, id.user.ID)
		if err != nil {
			return nil, err
		}
		return a.Searcher.Find(ctx, id.searches, id.user.Person(), cmp.Or(stored, new(storedAccount)).Found, a.now(), logger)
	case claim != "":
		logger.WarnContext(ctx, "the idp sent no fhirUser for this person: tokens with user/ scopes may read nothing", "claim", claim)
	}
	return nil, nil
}

// checkFHIRUser makes the reference relative to our FHIR base, or drops it unless it names a
// person there.
func (a *Accounts) checkFHIRUser(ctx context.Context, claim string, user *User, logger *slog.Logger) {
	reference := strings.TrimPrefix(user.FHIRUser, a.FHIRBase+"/")
	if user.FHIRUser = reference; CheckFHIRUser(reference) != nil {
		logger.WarnContext(ctx, "fhirUser of an identity provider names nobody on this FHIR server, as Practitioner/42 would; left out", "claim", claim, "value", reference)
		user.FHIRUser = ""
	}
}

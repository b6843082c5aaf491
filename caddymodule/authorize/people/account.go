package people

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/relyingparty"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/tokenclaim"
)

// storedAccount is a federated person, stored while sessions, codes and tokens refer to its id.
type storedAccount struct {
	Provider string   `json:"provider"`
	Issuer   string   `json:"issuer"`
	Subject  string   `json:"subject"`
	Groups   []string `json:"groups,omitempty"`
	Username string   `json:"username,omitempty"`
	User     User     `json:"user"`

	FHIRMatch *launch.FoundPerson `json:"found,omitempty"` // result of the search for the person at the FHIR server
}

// Accounts manages local users and federated accounts.
type Accounts struct {
	Directory    *Directory           // local users
	Providers    map[string]*Provider // identity providers by key
	ProviderKeys []string             // provider keys in configuration order
	Store        store.Store          // store for accounts in use
	DurableStore store.Store          // store for accounts that survive a restart
	FHIRBase     string               // base of absolute fhirUser URLs
	Searcher     launch.Searcher      // search for people at the FHIR server
	ScopeLimits  *scopelimit.Limits   // limits on the scopes of users
	Logger       *slog.Logger         // log for omitted claims

	// Clients is used to reject a claimed sub that equals a client_id. Required if a provider has a sub claim.
	Clients *client.Registry

	// RevokeUserGrants revokes all grants and sessions of a user. Required if a provider has a sub claim.
	RevokeUserGrants func(ctx context.Context, sub, reason string) error

	// Lifetime is how long a session and its tokens refer to a federated account.
	Lifetime time.Duration
}

// ErrNotAllowed is returned for a person excluded by the provider's rules or by the client.
var ErrNotAllowed = &oauth2.Error{Code: "access_denied", Description: "this person is not permitted to sign in"}

// durableAccount is an account in the durable store.
type durableAccount struct {
	storedAccount
	Until time.Time `json:"until,omitzero"` // expiry of the last session or token that refers to the account
}

// storedAccount returns a stored account, or nil. If the store lacks the account, it is restored from the durable store.
func (a *Accounts) storedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := store.GetJSON[storedAccount](ctx, a.Store, accountKey(id))
	if stored == nil && err == nil {
		stored, err = a.restoreAccount(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("reading a federated account: %w", err)
	}
	return stored, nil
}

func (s *storedAccount) identity() identity {
	return identity{subject: s.Subject, user: s.User, groups: s.Groups}
}

// AddProvider adds an identity provider with its redirect URI.
func (a *Accounts) AddProvider(c IdentityProvider, redirectURI string) error {
	if a.Providers[c.Key] != nil {
		return fmt.Errorf("idp %s is configured twice", c.Key)
	}
	p, err := newProvider(c, redirectURI, a.Logger)
	if err != nil {
		return err
	}
	for _, other := range a.Providers {
		for _, issuer := range p.issuersOfSubs() {
			if slices.Contains(other.issuersOfSubs(), issuer) && other.Issuer != p.Issuer {
				return fmt.Errorf("idp %s: idp %s already uses the sub namespace %s", c.Key, other.Key, issuer)
			}
		}
	}
	a.Providers[c.Key] = p
	a.ProviderKeys = append(a.ProviderKeys, c.Key)
	return nil
}

func accountKey(id string) string { return "account:" + id }

// ExtendLifetime extends the lifetime of a provider's account, and thereby its link to a local user, to the
// lifetime of a refresh token.
func (a *Accounts) ExtendLifetime(ctx context.Context, user, provider, subject string, lifetime time.Duration) error {
	p := a.Providers[provider]
	if p == nil {
		return nil
	}
	id := user
	if a.Directory.User(user) != nil { // the account is linked to a local user
		id = p.accountID(subject)
	}
	value, err := a.Store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) { // the account was removed concurrently
		return nil
	}
	if err != nil {
		return err
	}
	return a.storeDurably(ctx, id, value, lifetime+a.Lifetime)
}

// storeDurably writes an account and its index entries to the durable store for at least lifetime, together with other steps.
// It writes only if the account has changed or has to be stored longer.
func (a *Accounts) storeDurably(ctx context.Context, id string, account []byte, lifetime time.Duration, steps ...store.Step) error {
	durable, err := store.FromJSON[durableAccount](account)
	if err != nil {
		return fmt.Errorf("storing a federated account: %w", err)
	}
	keys := durable.indexKeys()
	return store.Retry(ctx, func() error {
		old, err := store.ReadValues(ctx, a.DurableStore, append([]string{durableAccountPrefix + id}, keys...)...)
		if err != nil {
			return err
		}
		calls, err := a.durableCalls(id, durable, old[0], lifetime)
		if err == nil {
			var more []*store.Call
			more, err = indexCalls(a.now(), id, durable.Until, keys, old[1:], storedIndexKeys(old[0]))
			calls = append(calls, more...)
		}
		if err == nil {
			err = store.Do(ctx, append(slices.Clip(steps), store.NewStep(a.DurableStore, calls...))...)
		}
		return err
	})
}

// storedIndexKeys returns the index keys of an account in the durable store.
func storedIndexKeys(value []byte) []string {
	account, err := store.FromJSON[storedAccount](value)
	if account == nil || err != nil {
		return nil
	}
	return account.indexKeys()
}

// durableCalls returns the calls that replace the account in the durable store, if any.
func (a *Accounts) durableCalls(id string, durable *durableAccount, old []byte, lifetime time.Duration) ([]*store.Call, error) {
	durable.Until = a.now().Add(lifetime).Truncate(time.Second)
	if old != nil {
		previous, err := store.FromJSON[durableAccount](old)
		if err != nil {
			return nil, fmt.Errorf("decoding a stored federated account: %w", err)
		}
		if previous.Until.After(durable.Until) {
			durable.Until = previous.Until
		}
	}
	value, err := store.ToJSON(durable)
	if err != nil || bytes.Equal(value, old) {
		return nil, err
	}
	return []*store.Call{store.ReplaceCall(durableAccountPrefix+id, old, value, durable.Until.Sub(a.now()))}, nil
}

func (a *Accounts) now() time.Time { return store.Now(a.DurableStore) }

// Rename replaces an account's user name with to, the provider's new name. It has no effect if the user name is no longer from.
func Rename(ctx context.Context, a *Accounts, id, from, to string) error {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil || lowerASCII(stored.Username) != lowerASCII(from) || lowerASCII(from) == lowerASCII(to) {
		return err
	}
	stored.Username = to
	return a.put(ctx, id, stored)
}

// put stores an account in both stores.
func (a *Accounts) put(ctx context.Context, id string, account *storedAccount) error {
	value, err := store.ToJSON(account)
	if err != nil {
		return err
	}
	putCall := &store.Call{Op: store.Put, Key: accountKey(id), Value: value, TTL: a.Lifetime}
	return a.storeDurably(ctx, id, value, a.Lifetime, store.NewStep(a.Store, putCall))
}

const durableAccountPrefix = "kept-account:"

// restoreAccount copies an account from the durable store to the store and returns it, or nil.
func (a *Accounts) restoreAccount(ctx context.Context, id string) (*storedAccount, error) {
	value, err := a.DurableStore.Get(ctx, durableAccountPrefix+id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err == nil {
		err = a.Store.Put(ctx, accountKey(id), value, a.Lifetime)
	}
	if err != nil {
		return nil, err
	}
	return store.FromJSON[storedAccount](value)
}

// indexKeys returns the index keys of an account.
func (s *storedAccount) indexKeys() []string {
	keys := []string{subjectKey(s.Issuer, s.Subject)}
	for _, name := range s.names() {
		if key := nameKey(s.Issuer, name); isIndexable(name) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// names returns the user name and the verified address. Missing values are "".
func (s *storedAccount) names() []string {
	return []string{s.Username, s.identity().verifiedEmail()}
}

func (s *storedAccount) isNamed(name string) bool {
	return isIndexable(name) && slices.ContainsFunc(s.names(), func(known string) bool { return lowerASCII(known) == lowerASCII(name) })
}

// describe returns the person's identity at their provider.
func (s *storedAccount) describe() audit.Person {
	return audit.Person{Provider: s.Provider, Subject: s.Subject, UserName: cmp.Or(s.names()...)}
}

// Find returns the user with a sub. It returns nil if the user was removed or disabled, or if the provider was removed or
// rejects the user.
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
		return nil, a.Directory.checkComplete(ctx)
	}
	stored.User.username, stored.User.Groups, stored.User.provider = stored.Username, stored.Groups, stored.Provider
	stored.User.FHIRUser = a.Providers[stored.Provider].fhirUser(stored)
	return &stored.User, nil
}

// allowedAccount returns a stored account, or nil if the provider now rejects it.
func (a *Accounts) allowedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil {
		return nil, err
	}
	if a.Clients != nil && a.Clients.FindConfigured(id) != nil { // a client was configured with this id after the sign-in; see assignSub
		return nil, nil
	}
	p := a.Providers[stored.Provider]
	if p == nil || p.subIssuer() != stored.Issuer || !p.allowsSignIn(stored.identity()) {
		return nil, nil
	}
	return stored, nil
}

// Admit returns the user for a provider's identity, which is either the linked local user or a federated user. The error is
// [ErrNotAllowed] if the person is rejected. The identity is stored in both cases, so that rules configured later can be
// applied. If a client needs the person's FHIR resource, sign-in fails while the FHIR server cannot be searched.
func (a *Accounts) Admit(ctx context.Context, p *Provider, id identity, needsFHIRUser bool) (*User, error) {
	audit.FromContext(ctx).Person = p.newStoredAccount(id).describe()
	local := a.linkedUser(p, id)
	if local != nil {
		audit.FromContext(ctx).User = local.ID
	}
	if err := applyRules(ctx, a, p, &id, local); err != nil {
		return nil, err
	}
	found, err := a.findFHIRUser(ctx, p, &id)
	if err != nil && needsFHIRUser {
		return nil, err
	}
	stored := p.newStoredAccount(id)
	stored.FHIRMatch = found
	if err := a.put(ctx, id.user.ID, stored); err != nil || local != nil {
		return local, err
	}
	id.user.FHIRUser = p.fhirUser(stored)
	return &id.user, nil
}

// newStoredAccount returns the stored form of an identity.
func (p *Provider) newStoredAccount(id identity) *storedAccount {
	return &storedAccount{Provider: p.Key, Issuer: id.issuer, Subject: id.subject, Username: id.user.username, User: id.user, Groups: id.groups}
}

// applyRules applies the provider's rules to a person and determines the sub. A linked account uses the local user's sub but is
// stored under the hash of issuer and subject.
func applyRules(ctx context.Context, a *Accounts, p *Provider, id *identity, local *User) error {
	switch {
	case !p.allowsSignIn(*id):
		return rejectPerson(ctx, a, p, *id, p.denialReason(*id))
	case !p.allowsHostedDomain(*id):
		return rejectPerson(ctx, a, p, *id, errOtherHostedDomain)
	case local != nil && local.Disabled:
		return rejectPerson(ctx, a, p, *id, errLinkedUserDisabled)
	case local != nil || p.Sub == "":
		return nil
	}
	err := assignSub(ctx, a, id)
	if errors.Is(err, errUnusableSub) {
		return rejectPerson(ctx, a, p, *id, fmt.Errorf("%w (claim %s)", err, p.Sub))
	}
	return err
}

// fhirUser returns a person's FHIR resource. It is configured, claimed by the provider if the claim is mapped, or found by a
// search that is still configured.
func (p *Provider) fhirUser(a *storedAccount) string {
	var claimed, found string
	if p.Claims["fhirUser"] != "" {
		claimed = a.User.FHIRUser
	}
	if a.FHIRMatch != nil && slices.Contains(p.FHIRUserSearch, a.FHIRMatch.Query.PersonSearch) {
		found = a.FHIRMatch.Reference
	}
	return cmp.Or(p.FHIRUsers[a.Subject], claimed, found)
}

// IsUnlinked reports whether a local user can no longer sign in as a provider's subject, because the provider was removed or
// replaced, rejects the subject, or is no longer linked to the user.
func (a *Accounts) IsUnlinked(ctx context.Context, user *User, provider, subject string) (bool, error) {
	if provider == "" || a.Directory.User(user.ID) == nil {
		return false, nil
	}
	p := a.Providers[provider]
	if p == nil {
		return true, nil
	}
	return a.IsAccountUnlinked(ctx, user, p, p.accountID(subject))
}

// IsAccountUnlinked reports whether a provider's account is no longer linked to a local user.
func (a *Accounts) IsAccountUnlinked(ctx context.Context, user *User, p *Provider, id string) (bool, error) {
	stored, err := a.allowedAccount(ctx, id)
	if stored == nil || err != nil {
		return true, err
	}
	return !p.isLinked(stored.identity(), user), nil
}

// LinkedAccount returns the id of the provider's account with which a local user signed in, or "".
func (a *Accounts) LinkedAccount(user, provider, subject string) string {
	p := a.Providers[provider]
	if p == nil || a.Directory.User(user) == nil {
		return ""
	}
	return p.accountID(subject)
}

// findFHIRUser validates the provider's fhirUser claim and returns the result of a search at the FHIR server, if any.
func (a *Accounts) findFHIRUser(ctx context.Context, p *Provider, id *identity) (*launch.FoundPerson, error) {
	logger := a.Logger.With("idp", p.Key, "subject", id.subject, "user", id.user.username)
	if name := id.user.username; name != "" && !isIndexable(name) {
		logger.WarnContext(ctx, "user name with control characters not indexed")
	}
	if len(id.user.Unread) > 0 {
		logger.WarnContext(ctx, "user claims ignored: too long, wrong type, or distributed; allow rules on them do not match", "claims", id.user.Unread)
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
		return a.Searcher.Find(ctx, id.queries, id.user.Person(), cmp.Or(stored, new(storedAccount)).FHIRMatch, a.now(), logger)
	case claim != "":
		logger.WarnContext(ctx, "fhirUser missing: user/ scopes grant no access", "claim", claim)
	}
	return nil, nil
}

// checkFHIRUser makes user.FHIRUser relative to the FHIR base. If it does not refer to a person at the FHIR server, it is
// cleared and a warning is logged.
func (a *Accounts) checkFHIRUser(ctx context.Context, claim string, user *User, logger *slog.Logger) {
	reference := strings.TrimPrefix(user.FHIRUser, a.FHIRBase+"/")
	if user.FHIRUser = reference; CheckFHIRUser(reference) != nil {
		logger.WarnContext(ctx, "fhirUser ignored: expected a resource of this FHIR server, such as Practitioner/42", "claim", claim, "value", reference)
		user.FHIRUser = ""
	}
}

// subOwner is the owner of a claimed sub.
type subOwner struct {
	Issuer  string    `json:"issuer"`
	Subject string    `json:"subject"`
	Until   time.Time `json:"until"`

	Released time.Time `json:"released,omitzero"` // release time, after which another person may get the sub; zero if not released
}

const (
	// ownershipLifetime exceeds the lifetime of every grant, measured from the last sign-in.
	ownershipLifetime = 2 * 366 * 24 * time.Hour

	// ownershipRenewalAge is the age at which a sign-in renews the owner's record.
	ownershipRenewalAge = 30 * 24 * time.Hour

	// releaseDelay exceeds the duration of a sign-in, so that a concurrent sign-in completes before
	// another person gets a released sub.
	releaseDelay = 5 * time.Minute
)

// errUnusableSub means that a provider's claim cannot be used as this person's sub.
var errUnusableSub = errors.New("the idp's claim configured as sub")

func newUnusableSubError(why string) error { return fmt.Errorf("%w %s", errUnusableSub, why) }

// assignSub uses the provider's claim as the sub of a person who signs in, or returns [errUnusableSub].
func assignSub(ctx context.Context, a *Accounts, id *identity) error {
	if err := checkSub(id.sub); err != nil {
		return err
	}
	if a.Directory.User(id.sub) != nil {
		return newUnusableSubError("is the name of a local user")
	}
	app, err := a.Clients.Find(ctx, id.sub)
	switch {
	case err != nil:
		return err
	case app != nil:
		return newUnusableSubError("is the client_id of a client")
	}
	if err = recordSubOwner(ctx, a, id); err == nil {
		id.user.ID = id.sub
	}
	return err
}

func checkSub(sub string) error {
	if sub == "" {
		return newUnusableSubError("is missing or not a string")
	}
	if err := namecheck.CheckConfigured(sub); err != nil {
		return newUnusableSubError(err.Error())
	}
	if strings.Contains(sub, " ") {
		return newUnusableSubError("contains a space")
	}
	return nil
}

// recordSubOwner records the owner of a claimed sub before the account is stored. Ownership outlasts the
// account, because apps store records under the sub.
func recordSubOwner(ctx context.Context, a *Accounts, id *identity) error {
	return store.UpdateValue(ctx, a.DurableStore, store.Key("sub-owner", id.sub), ownershipLifetime, func(read []byte) ([]byte, error) {
		owner, err := store.FromJSON[subOwner](read)
		until := a.now().Add(ownershipLifetime).Truncate(time.Second)
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the owner of sub: %w", err)
		case owner == nil:
		case owner.Issuer != id.issuer || owner.Subject != id.subject:
			if owner.Released.IsZero() || a.now().Before(owner.Released.Add(releaseDelay)) {
				return nil, newUnusableSubError("has a value that already belongs to another person")
			}
			if err := revokePreviousOwner(ctx, a, id.sub); err != nil {
				return nil, err
			}
		case !owner.Released.IsZero(): // cancels the release
		case until.Sub(owner.Until) < ownershipRenewalAge:
			return nil, nil
		}
		return store.ToJSON(subOwner{Issuer: id.issuer, Subject: id.subject, Until: until})
	})
}

// revokePreviousOwner revokes everything granted under a sub before another person gets it.
func revokePreviousOwner(ctx context.Context, a *Accounts, sub string) error {
	err := a.RevokeUserGrants(ctx, sub, "released sub reassigned to another person")
	if err != nil {
		return err
	}
	return a.DeleteAccount(ctx, sub)
}

// ReleaseSub makes a claimed sub available to other people and reports whether the sub has an owner. A sign-in by the owner
// cancels the release.
func ReleaseSub(ctx context.Context, a *Accounts, sub string) (owned bool, err error) {
	err = store.UpdateValue(ctx, a.DurableStore, store.Key("sub-owner", sub), ownershipLifetime, func(read []byte) ([]byte, error) {
		owner, err := store.FromJSON[subOwner](read)
		if owned = owner != nil; !owned || err != nil || !owner.Released.IsZero() {
			return nil, err
		}
		owner.Released = a.now()
		return store.ToJSON(owner)
	})
	return owned, err
}

// checkLink returns an error if a provider links by address and another user has the same verified address, because the link
// would be ambiguous.
func (d *Directory) checkLink(u *User) error {
	if !d.linksByEmail || !u.EmailVerified || u.Email == "" {
		return nil
	}
	for _, id := range d.addresses.Get(lowerASCII(u.Email)) {
		if d.User(id).EmailVerified {
			return fmt.Errorf("users %q and %q have the same verified e-mail address, but an idp links accounts by address", id, u.ID)
		}
	}
	return nil
}

// linkedUser returns the local user to which a person is linked, or nil. It also returns disabled users, so that the person
// does not get a separate account.
func (a *Accounts) linkedUser(p *Provider, id identity) *User {
	for _, user := range a.Directory.addresses.Get(lowerASCII(id.verifiedEmail())) {
		if user := a.Directory.User(user); p.isLinked(id, user) {
			return user
		}
	}
	return nil
}

// isLinked reports whether a person of the provider is linked to the local user. At most one user matches ([Directory.Add]).
func (p *Provider) isLinked(id identity, user *User) bool {
	address := id.verifiedEmail()
	return p.LinkEmail && address != "" && user.EmailVerified && lowerASCII(user.Email) == lowerASCII(address)
}

// Errors for people who are rejected although a rule permits their sign-in.
var (
	errLinkedUserDisabled = errors.New("the linked local user is disabled")
	errOtherHostedDomain  = errors.New("the hd claim is missing or not the configured request_parameter hd")
)

// NewNotAllowedError returns [ErrNotAllowed] with a reason that only the audit log records.
func NewNotAllowedError(why error) error {
	rejection := *ErrNotAllowed
	rejection.Err = why
	return &rejection
}

// ErrAccountNotDeleted means that a rejected person keeps their grants because the store failed.
var ErrAccountNotDeleted = errors.New("deleting the federated account failed")

// rejectPerson rejects a person and deletes the accounts that the same provider admitted earlier, which ends their sessions and
// tokens. The identity must come from an ID token that was just verified, so that only the provider can trigger the deletion.
// Accounts last admitted by another idp of the same issuer are not deleted.
func rejectPerson(ctx context.Context, a *Accounts, p *Provider, id identity, why error) error {
	found, err := Finder{a}.FindBySubject(ctx, p, id.subject)
	for _, known := range found {
		if audit.FromContext(ctx).User == "" {
			audit.FromContext(ctx).User = known.ID
		}
		if known.Provider == p.Key {
			err = errors.Join(err, a.DeleteAccount(ctx, known.ID))
		}
	}
	if err != nil {
		why = fmt.Errorf("%w; %w: %w", why, ErrAccountNotDeleted, err)
	}
	return NewNotAllowedError(why)
}

// DeleteAccount deletes an account, which invalidates its sessions and grants until the person signs in again.
func (a *Accounts) DeleteAccount(ctx context.Context, id string) error {
	// The account in the durable store is deleted first. Otherwise, the account could be restored from there.
	return store.Do(ctx, store.NewStep(a.DurableStore, store.DeleteCalls(durableAccountPrefix+id)...), store.NewStep(a.Store, store.DeleteCalls(accountKey(id))...))
}

// denialReason returns an error that describes how a person fails each rule, without claim values.
func (p *Provider) denialReason(id identity) error {
	if !p.allowsTenant(id.subject) {
		tenant, _ := relyingparty.SplitSubject(id.subject)
		return fmt.Errorf("tenant %s is not listed in tenants", tenant)
	}
	var mismatches []string
	for _, rule := range p.Allow {
		mismatches = append(mismatches, fmt.Sprintf("allow %s %s: %s", rule.Claim, rule.Value, id.mismatch(rule)))
	}
	return errors.New(strings.Join(mismatches, "; "))
}

func (id identity) mismatch(rule AllowRule) string {
	switch {
	case rule.matchesGroup() && slices.Contains(id.user.Unread, tokenclaim.DefaultGroupsClaim):
		return "the idp's groups claim is not readable"
	case rule.matchesGroup() && len(id.groups) == 0:
		return "no groups from the idp"
	case rule.matchesGroup():
		return "person is not in this group"
	case id.user.Email == "":
		return "no e-mail address from the idp"
	case id.verifiedEmail() == "":
		return "e-mail address is not verified"
	}
	return "e-mail address does not match"
}

package people

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// storedAccount is a federated person, kept as long as sessions, codes and tokens refer to
// its id.
type storedAccount struct {
	Provider string   `json:"provider"`
	Issuer   string   `json:"issuer"`
	Subject  string   `json:"subject"`
	Groups   []string `json:"groups,omitempty"`
	Username string   `json:"username,omitempty"`
	User     User     `json:"user"`

	Found *launch.FoundPerson `json:"found,omitempty"` // at the FHIR server
}

// Accounts are those of local users and of people of identity providers.
type Accounts struct {
	Directory    *Directory           // the local users
	Providers    map[string]*Provider // by key
	ProviderKeys []string             // in the order of the configuration
	Store        store.Store          // for accounts in use
	Durable      store.Store          // for accounts that outlive a restart
	FHIRBase     string               // fhirUser claims are absolute URLs below it
	Searcher     launch.Searcher      // finds people at the FHIR server
	ScopeLimits  *scopelimit.Limits   // which scopes people may have
	Logger       *slog.Logger         // gets claims that are left out

	// Clients are those whose ids nobody may claim as their sub. Required where one is claimed.
	Clients *client.Registry

	// EndPerson ends everything that was given to a person. Required where a sub is claimed.
	EndPerson func(ctx context.Context, sub, reason string) error

	// Lifetime is how long a session and its tokens refer to a federated person.
	Lifetime time.Duration
}

// ErrNotAllowed refuses a person whom the provider's rules or the client do not let in.
var ErrNotAllowed = &oauth2.Error{Code: "access_denied", Description: "this person may not sign in here"}

// keptAccount is an account in the durable store.
type keptAccount struct {
	storedAccount
	Until time.Time `json:"until,omitzero"` // when nothing refers to it any more
}

// storedAccount returns a stored account, or nil. It restores one that was kept.
func (a *Accounts) storedAccount(ctx context.Context, id string) (*storedAccount, error) {
	stored, err := store.GetJSON[storedAccount](ctx, a.Store, accountKey(id))
	if stored == nil && err == nil {
		stored, err = a.restoreAccount(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an account: %w", err)
	}
	return stored, nil
}

func (s *storedAccount) identity() identity { return identity{user: s.User, groups: s.Groups} }

// AddProvider adds a provider, which sends people back to a redirect URI.
func (a *Accounts) AddProvider(c IdentityProvider, redirectURI string) error {
	if a.Providers[c.Key] != nil {
		return fmt.Errorf("duplicate idp %s", c.Key)
	}
	p, err := newProvider(c, redirectURI, a.Logger)
	if err != nil {
		return err
	}
	for _, other := range a.Providers {
		if other.subIssuer() == p.subIssuer() && other.Issuer != p.Issuer {
			return fmt.Errorf("idp %s: the people of idp %s have the subs of %s already", c.Key, other.Key, p.subIssuer())
		}
	}
	a.Providers[c.Key] = p
	a.ProviderKeys = append(a.ProviderKeys, c.Key)
	return nil
}

func accountKey(id string) string { return "account:" + id }

// Keep makes the account of a user who is a provider's subject, and so its link to a local
// user, last as long as a refresh token.
func (a *Accounts) Keep(ctx context.Context, user, provider, subject string, lifetime time.Duration) error {
	p := a.Providers[provider]
	if p == nil {
		return nil
	}
	id := user
	if a.Directory.User(user) != nil { // linked
		id = accountID(p.subIssuer(), subject)
	}
	value, err := a.Store.Get(ctx, accountKey(id))
	if errors.Is(err, store.ErrNotFound) { // just removed
		return nil
	}
	if err != nil {
		return err
	}
	return a.retain(ctx, id, value, lifetime+a.Lifetime)
}

// retain keeps an account for at least a lifetime, with what it is found by, and makes other
// steps with that. It writes only if the account changes or must last longer.
func (a *Accounts) retain(ctx context.Context, id string, account []byte, lifetime time.Duration, steps ...store.Step) error {
	kept, err := store.FromJSON[keptAccount](account)
	if err != nil {
		return fmt.Errorf("keeping an account: %w", err)
	}
	keys := kept.indexKeys()
	return store.Retry(ctx, func() error {
		old, err := store.Values(ctx, a.Durable, append([]string{keptAccountPrefix + id}, keys...)...)
		if err != nil {
			return err
		}
		calls, err := a.retaining(id, kept, old[0], lifetime)
		if err == nil {
			var more []*store.Call
			more, err = indexing(a.now(), id, kept.Until, keys, old[1:], indexedBy(old[0]))
			calls = append(calls, more...)
		}
		if err == nil {
			err = store.Do(ctx, append(slices.Clip(steps), store.In(a.Durable, calls...))...)
		}
		return err
	})
}

// indexedBy are the keys of what a kept account was found by.
func indexedBy(kept []byte) []string {
	account, err := store.FromJSON[storedAccount](kept)
	if account == nil || err != nil {
		return nil
	}
	return account.indexKeys()
}

// retaining returns the calls that keep an account in place of the old one, if there is one.
func (a *Accounts) retaining(id string, kept *keptAccount, old []byte, lifetime time.Duration) ([]*store.Call, error) {
	kept.Until = a.now().Add(lifetime).Truncate(time.Second)
	if old != nil {
		var err error
		if kept.Until, err = a.keptUntil(old, kept.Until); err != nil {
			return nil, err
		}
	}
	value, err := store.ToJSON(kept)
	if err != nil || bytes.Equal(value, old) {
		return nil, err
	}
	return []*store.Call{store.Replacing(keptAccountPrefix+id, old, value, kept.Until.Sub(a.now()))}, nil
}

func (a *Accounts) now() time.Time { return store.Now(a.Durable) }

// keptUntil is the later of until and the time until which an account is kept already.
func (a *Accounts) keptUntil(old []byte, until time.Time) (time.Time, error) {
	kept, err := store.FromJSON[keptAccount](old)
	if err != nil {
		return until, fmt.Errorf("reading a kept account: %w", err)
	}
	if kept.Until.After(until) {
		until = kept.Until
	}
	return until, nil
}

// Rename gives an account the user name that its provider says it has now, in place of another that it has still.
func Rename(ctx context.Context, a *Accounts, id, from, to string) error {
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil || lowered(stored.Username) != lowered(from) || lowered(from) == lowered(to) {
		return err
	}
	stored.Username = to
	return a.put(ctx, id, stored)
}

// put stores an account, in use and kept.
func (a *Accounts) put(ctx context.Context, id string, account *storedAccount) error {
	value, err := store.ToJSON(account)
	if err != nil {
		return err
	}
	inUse := &store.Call{Op: store.Put, Key: accountKey(id), Value: value, TTL: a.Lifetime}
	return a.retain(ctx, id, value, a.Lifetime, store.In(a.Store, inUse))
}

const keptAccountPrefix = "kept-account:"

// restoreAccount copies a kept account back to the store, and returns it, or nil.
func (a *Accounts) restoreAccount(ctx context.Context, id string) (*storedAccount, error) {
	value, err := a.Durable.Get(ctx, keptAccountPrefix+id)
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

// indexKeys are those of what an account is found by, beside its id.
func (s *storedAccount) indexKeys() []string {
	keys := []string{subjectKey(s.Issuer, s.Subject)}
	for _, name := range s.names() {
		if key := nameKey(s.Issuer, name); isName(name) && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// names are the user name and the address, if the provider has verified it; else they are "".
func (s *storedAccount) names() []string {
	return []string{s.Username, s.identity().verifiedEmail()}
}

func (s *storedAccount) isNamed(name string) bool {
	return isName(name) && slices.ContainsFunc(s.names(), func(known string) bool { return lowered(known) == lowered(name) })
}

// describe returns who the person is at their provider.
func (s *storedAccount) describe() audit.Person {
	return audit.Person{Provider: s.Provider, Subject: s.Subject, UserName: cmp.Or(s.names()...)}
}

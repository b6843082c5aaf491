package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// indexEntry is what a term leads to: accounts, the latest last, which may have other names by now. It lasts as long as
// they are kept.
type indexEntry struct {
	IDs   []string  `json:"ids"`
	Until time.Time `json:"until"`
}

// maxNamesakes is how many accounts one term leads to. Only user names and addresses can be those of several.
const maxNamesakes = 20

func indexKey(term string) string { return store.Key("person", term) }

func subjectTerm(issuer, subject string) string { return issuer + "\x00" + subject }

// indexKeys are those of what an account is found by, beside its id.
func (s *storedAccount) indexKeys() []string {
	keys := []string{indexKey(subjectTerm(s.Issuer, s.Subject))}
	for _, name := range s.names() {
		if key := indexKey(lowered(name)); name != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// names are the user name and the address, if the provider has verified it; else they are "".
func (s *storedAccount) names() []string {
	address, ok := s.identity().verifiedEmail()
	if !ok {
		address = ""
	}
	return []string{s.Username, address}
}

func (s *storedAccount) isNamed(name string) bool {
	return name != "" && slices.ContainsFunc(s.names(), func(known string) bool { return lowered(known) == lowered(name) })
}

// indexing returns the calls that add an account to entries, given what is stored there. They last until the end of a
// day, so that most sign-ins change none.
func (a *Accounts) indexing(id string, until time.Time, keys []string, stored [][]byte) (calls []*store.Call, err error) {
	until = until.Add(24 * time.Hour).Truncate(24 * time.Hour)
	for i, key := range keys {
		entry, err := store.FromJSON[indexEntry](stored[i])
		if errors.Is(err, store.ErrNewer) {
			continue
		}
		entry = cmp.Or(entry, new(indexEntry)) // also in place of one that cannot be read
		if slices.Contains(entry.IDs, id) && !entry.Until.Before(until) {
			continue
		}
		entry.IDs = append(slices.DeleteFunc(entry.IDs, func(other string) bool { return other == id }), id)
		entry.IDs = entry.IDs[max(0, len(entry.IDs)-maxNamesakes):]
		if entry.Until.Before(until) {
			entry.Until = until
		}
		value, err := store.ToJSON(entry)
		if err != nil {
			return nil, err
		}
		calls = append(calls, store.Replacing(key, stored[i], value, entry.Until.Sub(a.now())))
	}
	return calls, nil
}

// Known is a stored account of a person at a provider.
type Known struct {
	audit.Person
	ID   string // the account's
	User string // the sub: the account's id, or a local user's, if it is linked to one
}

// find returns the accounts that match of those that a term leads to, and of further ones.
func (a *Accounts) find(ctx context.Context, term string, match func(id string, s *storedAccount) bool, further ...string) (found []Known, err error) {
	entry, err := store.GetJSON[indexEntry](ctx, a.Durable, indexKey(term))
	if err != nil {
		return nil, err
	}
	if entry != nil {
		further = append(further, entry.IDs...)
	}
	slices.Sort(further)
	for _, id := range slices.Compact(further) {
		stored, err := a.storedAccount(ctx, id)
		if err != nil {
			return nil, err
		}
		if stored != nil && match(id, stored) {
			found = append(found, Known{a.describe(stored), id, a.holder(id, stored)})
		}
	}
	return found, nil
}

// holder is the sub that the person of an account has.
func (a *Accounts) holder(id string, s *storedAccount) string {
	if p := a.Providers[s.Provider]; p != nil {
		if local := a.linked(p, s.identity()); local != nil {
			return local.ID
		}
	}
	return id
}

// BySubject returns the accounts of a subject at a provider's issuer: several, if what is used for sub has changed.
func (a *Accounts) BySubject(ctx context.Context, p *Provider, subject string) ([]Known, error) {
	return a.find(ctx, subjectTerm(p.Issuer, subject), func(_ string, s *storedAccount) bool {
		return s.Issuer == p.Issuer && s.Subject == subject
	}, accountID(p.Issuer, subject)) // which versions before did not index
}

// ByID returns the accounts of a provider's issuer whose subject there, or sub here, is an id.
func (a *Accounts) ByID(ctx context.Context, p *Provider, id string) ([]Known, error) {
	found, err := a.BySubject(ctx, p, id)
	if len(found) > 0 || err != nil {
		return found, err
	}
	stored, err := a.storedAccount(ctx, id)
	if stored == nil || err != nil || stored.Issuer != p.Issuer {
		return nil, err
	}
	return []Known{{a.describe(stored), id, a.holder(id, stored)}}, nil
}

// ByName returns the accounts of a provider's issuer with a sub, user name or verified address.
func (a *Accounts) ByName(ctx context.Context, p *Provider, name string) ([]Known, error) {
	return a.find(ctx, lowered(name), func(id string, s *storedAccount) bool {
		return s.Issuer == p.Issuer && (id == name || s.isNamed(name))
	}, name)
}

// Resolve returns the subs that an operator may mean by a term: a sub, the key of a provider, a colon and the subject
// there, a user name or an e-mail address. The case of ASCII letters does not count in the latter two. A sub means
// nobody else.
func (a *Accounts) Resolve(ctx context.Context, term string) ([]string, error) {
	if a.Directory.Users[term] != nil {
		return []string{term}, nil
	}
	if stored, err := a.storedAccount(ctx, term); stored != nil || err != nil {
		return []string{term}, err
	}
	found, err := a.find(ctx, lowered(term), func(_ string, s *storedAccount) bool { return s.isNamed(term) })
	key, subject, _ := strings.Cut(term, ":")
	if p := a.Providers[key]; p != nil && err == nil {
		var others []Known
		others, err = a.BySubject(ctx, p, subject)
		found = append(found, others...)
	}
	subs := a.Directory.named(term)
	for _, known := range found {
		subs = append(subs, known.User)
	}
	slices.Sort(subs)
	return slices.Compact(subs), err
}

// ErrAmbiguous says that a term may mean several people, and lists their subs.
var ErrAmbiguous = errors.New("that may be several people: name one by the sub")

// Sub is the sub that an operator means by a term: the one that [Accounts.Resolve] finds, or the term itself, as somebody
// may have left who has grants or sessions still.
func (a *Accounts) Sub(ctx context.Context, term string) (string, error) {
	if term == "" {
		return "", nil
	}
	switch subs, err := a.Resolve(ctx, term); {
	case err != nil:
		return "", err
	case len(subs) > 1:
		return "", fmt.Errorf("%w: %s", ErrAmbiguous, strings.Join(subs, ", "))
	case len(subs) == 1:
		return subs[0], nil
	}
	return term, nil
}

// named returns the local users that a name or an address may mean.
func (d *Directory) named(term string) (ids []string) {
	if id := d.AccountNamed(term); id != "" {
		ids = append(ids, id)
	}
	for _, user := range d.Users {
		if user.Email != "" && lowered(user.Email) == lowered(term) {
			ids = append(ids, user.ID)
		}
	}
	return ids
}

// Describe returns who the person with a sub is at their provider; empty if they are at none, or unknown. An event is
// recorded all the same if the store cannot tell.
func (a *Accounts) Describe(ctx context.Context, sub string) (who audit.Person) {
	if a.Directory.Users[sub] != nil {
		return who
	}
	if stored, err := a.storedAccount(ctx, sub); stored != nil && err == nil {
		who = a.describe(stored)
	}
	return who
}

// describe leaves the user name out if the configuration says so.
func (a *Accounts) describe(s *storedAccount) audit.Person {
	who := audit.Person{Provider: s.Provider, Subject: s.Subject}
	if !a.OmitUserNames {
		who.UserName = cmp.Or(s.names()...)
	}
	return who
}

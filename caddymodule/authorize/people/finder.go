package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Finder finds people by identifiers such as user name, e-mail address, or subject at a provider.
type Finder struct {
	Accounts *Accounts // accounts to search
}

// StoredPerson is a stored account of a person at a provider.
type StoredPerson struct {
	audit.Person
	ID   string // account id
	User string // sub: the account id, or the id of the linked local user
}

// find returns the accounts that match among those indexed under keys and those with the additional ids in further.
func (f Finder) find(ctx context.Context, keys []string, match func(id string, s *storedAccount) bool, further ...string) (found []StoredPerson, err error) {
	ids, err := f.indexedIDs(ctx, keys)
	if err != nil {
		return nil, err
	}
	return f.matchIDs(ctx, match, append(ids, further...)...)
}

func (f Finder) matchIDs(ctx context.Context, match func(id string, s *storedAccount) bool, ids ...string) (found []StoredPerson, err error) {
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		stored, err := f.Accounts.storedAccount(ctx, id)
		if err != nil {
			return nil, err
		}
		if stored != nil && match(id, stored) {
			found = append(found, StoredPerson{stored.describe(), id, f.subOf(id, stored)})
		}
	}
	return found, nil
}

// indexedIDs returns the ids of the accounts in index entries.
func (f Finder) indexedIDs(ctx context.Context, keys []string) (ids []string, err error) {
	values, err := store.ReadValues(ctx, f.Accounts.DurableStore, keys...)
	for _, value := range values {
		entry, err := store.FromJSON[indexEntry](value)
		switch {
		case err != nil:
			return nil, err
		case entry == nil:
			continue
		case entry.IsFull:
			kept, err := f.Accounts.DurableStore.List(ctx, durableAccountPrefix)
			for _, key := range kept {
				ids = append(ids, strings.TrimPrefix(key, durableAccountPrefix))
			}
			return ids, err
		}
		for _, t := range entry.Uses {
			ids = append(ids, t.ID)
		}
	}
	return ids, err
}

// FindFirstNamed returns the account that was the first to use a name since the given time, regardless of its current name. The
// result is empty if that account no longer exists.
func (f Finder) FindFirstNamed(ctx context.Context, p *Provider, name string, since time.Time) ([]StoredPerson, error) {
	entry, err := store.GetJSON[indexEntry](ctx, f.Accounts.DurableStore, nameKey(p.subIssuer(), name))
	if entry == nil || err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entry.Uses, func(t nameUse) bool { return !t.Since.Before(since) })
	switch {
	case i >= 0:
		return f.matchIDs(ctx, func(_ string, s *storedAccount) bool { return s.Issuer == p.subIssuer() }, entry.Uses[i].ID)
	case entry.IsFull:
		return nil, ErrAmbiguous
	}
	return nil, nil
}

// subOf returns the sub of an account's person.
func (f Finder) subOf(id string, s *storedAccount) string {
	if p := f.Accounts.Providers[s.Provider]; p != nil {
		if local := f.Accounts.linkedUser(p, s.identity()); local != nil {
			return local.ID
		}
	}
	return id
}

// FindBySubject returns the accounts of a subject at a provider's issuer. There can be several if the sub claim was
// reconfigured.
func (f Finder) FindBySubject(ctx context.Context, p *Provider, subject string) ([]StoredPerson, error) {
	return f.find(ctx, []string{subjectKey(p.subIssuer(), subject)}, func(_ string, s *storedAccount) bool {
		return s.Issuer == p.subIssuer() && s.Subject == subject
	})
}

// FindByID returns the accounts of a provider's issuer by the provider's subject or by sub.
func (f Finder) FindByID(ctx context.Context, p *Provider, id string) ([]StoredPerson, error) {
	found, err := f.FindBySubject(ctx, p, id)
	if len(found) > 0 || err != nil {
		return found, err
	}
	return f.matchIDs(ctx, func(_ string, s *storedAccount) bool { return s.Issuer == p.subIssuer() }, id)
}

// FindByName returns the accounts of a provider's issuer by sub, user name or verified address.
func (f Finder) FindByName(ctx context.Context, p *Provider, name string) ([]StoredPerson, error) {
	return f.find(ctx, []string{nameKey(p.subIssuer(), name)}, func(id string, s *storedAccount) bool {
		return s.Issuer == p.subIssuer() && (id == name || s.isNamed(name))
	}, name)
}

// Resolve returns the distinct people that an operator's term may refer to. The terms local:SUB for local users, and
// KEY:SUBJECT for the subject of the provider with that key, are unambiguous. A sub takes precedence over equal names, which
// people may choose at their provider. Any other term is a user name or an e-mail address, local or at any provider. User names
// and addresses match case-insensitively (ASCII).
func (f Finder) Resolve(ctx context.Context, term string) ([]StoredPerson, error) {
	key, subject, _ := strings.Cut(term, ":")
	if key == Local && f.Accounts.Directory.User(subject) != nil {
		return []StoredPerson{f.localPerson(subject)}, nil
	}
	if p := f.Accounts.Providers[key]; p != nil {
		if found, err := f.FindBySubject(ctx, p, subject); len(found) > 0 || err != nil {
			return distinctPeople(found), err
		}
	}
	if f.Accounts.Directory.User(term) != nil {
		return []StoredPerson{f.localPerson(term)}, nil
	}
	if found, err := f.matchIDs(ctx, func(string, *storedAccount) bool { return true }, term); len(found) > 0 || err != nil {
		return found, err
	}
	return f.resolveName(ctx, term)
}

// resolveName returns the distinct people with a user name or verified e-mail address.
func (f Finder) resolveName(ctx context.Context, name string) (found []StoredPerson, err error) {
	var keys []string
	for _, p := range f.Accounts.Providers {
		if key := nameKey(p.subIssuer(), name); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	for _, id := range f.Accounts.Directory.findByTerm(name) {
		found = append(found, f.localPerson(id))
	}
	more, err := f.find(ctx, keys, func(_ string, s *storedAccount) bool { return s.isNamed(name) })
	return distinctPeople(append(found, more...)), err
}

// localPerson returns a local user. Names from providers are not included.
func (f Finder) localPerson(id string) StoredPerson { return StoredPerson{ID: id, User: id} }

// distinctPeople returns the distinct people ordered by sub.
func distinctPeople(found []StoredPerson) []StoredPerson {
	slices.SortStableFunc(found, func(a, b StoredPerson) int { return strings.Compare(a.User, b.User) })
	return slices.CompactFunc(found, func(a, b StoredPerson) bool { return a.User == b.User })
}

// Term returns an unambiguous term for [Finder.Resolve].
func (k StoredPerson) Term() string {
	if k.Provider == "" {
		return Local + ":" + k.User
	}
	return k.Provider + ":" + k.Subject
}

// String describes a person for operators.
func (k StoredPerson) String() string {
	if k.ID == "" {
		return "sub " + k.User
	}
	text := k.Term()
	if k.UserName != "" {
		text += fmt.Sprintf(", user name %q", k.UserName)
	}
	return text + ", sub " + k.User
}

// ErrAmbiguous means that a term matches several people. The error that wraps it lists them.
var ErrAmbiguous = errors.New("ambiguous person: repeat the command with a sub, or with the text before the comma, from one of these lines")

// ResolveOne returns the person for an operator's term, or [ErrAmbiguous]. An unknown term is treated as a sub, because a
// deleted account may still have grants or sessions.
func (f Finder) ResolveOne(ctx context.Context, term string) (StoredPerson, error) {
	found, err := f.Resolve(ctx, term)
	switch {
	case err != nil:
		return StoredPerson{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return StoredPerson{User: term}, nil
	}
	err = ErrAmbiguous
	for _, known := range found {
		err = fmt.Errorf("%w\n%s", err, known)
	}
	return StoredPerson{}, err
}

// ResolveSub returns the sub found by [Finder.ResolveOne], or "" for an empty term.
func (f Finder) ResolveSub(ctx context.Context, term string) (string, error) {
	if term == "" {
		return "", nil
	}
	person, err := f.ResolveOne(ctx, term)
	return person.User, err
}

// Describe returns the provider identity of a sub, which is empty for local or unknown users. Store errors are ignored, so that
// audit events are recorded regardless.
func (f Finder) Describe(ctx context.Context, sub string) (who audit.Person) {
	if f.Accounts.Directory.User(sub) != nil {
		return who
	}
	if stored, err := f.Accounts.storedAccount(ctx, sub); stored != nil && err == nil {
		who = stored.describe()
	}
	return who
}

// indexEntry lists the accounts of an index key. It is stored as long as the accounts are.
type indexEntry struct {
	Uses   []nameUse `json:"taken"` // oldest first
	IsFull bool      `json:"full,omitempty"`
	Until  time.Time `json:"until"`
}

// nameUse is an account that has used a name. The account's current name may differ.
type nameUse struct {
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// maxNameUses is the maximum size of an index entry. Lookups of a full entry search all accounts.
const maxNameUses = 20

// Keys contain the kind and the issuer. Names of one provider therefore cannot displace people of another provider, or people
// with a subject that equals the name. No issuer contains a NUL.
func subjectKey(issuer, subject string) string {
	return store.Key("person", "subject\x00"+issuer+"\x00"+subject)
}

func nameKey(issuer, name string) string {
	return store.Key("person", "name\x00"+issuer+"\x00"+lowerASCII(name))
}

// isIndexable reports whether a text can be used for lookups.
func isIndexable(text string) bool {
	return text != "" && !strings.ContainsFunc(text, unicode.IsControl)
}

// indexCalls returns the calls that add an account to index entries. stored contains the current entries, and previousKeys the
// keys under which the account was indexed before. Entries expire at the end of a day, so that most sign-ins write nothing.
func indexCalls(now time.Time, id string, until time.Time, keys []string, stored [][]byte, previousKeys []string) (calls []*store.Call, err error) {
	until = until.Add(24 * time.Hour).Truncate(24 * time.Hour)
	for i, key := range keys {
		entry, err := store.FromJSON[indexEntry](stored[i])
		if errors.Is(err, store.ErrNewerVersion) {
			continue
		}
		entry = cmp.Or(entry, new(indexEntry)) // unreadable entries are replaced
		if !entry.addUse(id, now, slices.Contains(previousKeys, key)) && !entry.Until.Before(until) {
			continue
		}
		if entry.Until.Before(until) {
			entry.Until = until
		}
		value, err := store.ToJSON(entry)
		if err != nil {
			return nil, err
		}
		calls = append(calls, store.ReplaceCall(key, stored[i], value, entry.Until.Sub(now)))
	}
	return calls, nil
}

// addUse adds an account to the entry and reports whether the entry changed. had means that the account already had the name.
// The entry contains the first and the latest use of a name.
func (e *indexEntry) addUse(id string, now time.Time, had bool) bool {
	is := func(t nameUse) bool { return t.ID == id }
	first := slices.IndexFunc(e.Uses, is)
	switch {
	case first >= 0 && had || first < 0 && e.IsFull:
		return false
	case first < 0 && len(e.Uses) >= maxNameUses:
		e.IsFull = true
		return true
	}
	if first >= 0 { // the account was renamed back
		later := slices.DeleteFunc(slices.Clone(e.Uses[first+1:]), is)
		if e.Uses = append(e.Uses[:first+1], later...); len(e.Uses) >= maxNameUses {
			e.IsFull = true
			return true
		}
	}
	e.Uses = append(e.Uses, nameUse{id, now})
	return true
}

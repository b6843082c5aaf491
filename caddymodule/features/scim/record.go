package scim

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/deprovisioning"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/asciicase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

const (
	maxUsers = 100_000 // maximum number of Users of a provider
	maxPage  = 100     // maximum number of Users in a response
)

var (
	errUserNotFound = &oauth2.Error{Code: "invalid_request", Description: "user not found", Status: http.StatusNotFound}
	errTaken        = &oauth2.Error{
		Code: "invalid_request", Status: http.StatusConflict, Err: scimType("uniqueness"),
		Description: "another user has this userName or externalId",
	}
	errTooMany = &oauth2.Error{
		Code: "invalid_request", Status: http.StatusInsufficientStorage,
		Description: "too many users: delete users, or assign fewer people to the application",
	}
)

// storedUser is a User in the store.
type storedUser struct {
	names
	Active *bool `json:"a,omitempty"` // nil if the provider removed the attribute; counts as active

	id  string
	raw []byte // stored value, which a change must replace
}

// users manages the Users of one provider in the store. Each User has an entry by its id. For each name of a User, an entry
// contains the id. Ids sort by time of creation.
type users struct {
	provider      *people.Provider
	store         store.Store
	deprovisioner *deprovisioning.Deprovisioner // finds people and ends their access
}

// prefix returns the prefix of the keys of the Users' entries.
func (us *users) prefix() string { return "scim-user:" + us.provider.Key + ":" }

// nameKeys returns the keys of the entries for names. User names are case-insensitive (RFC 7643 §4.1.1), but only in ASCII like
// those of accounts.
func (us *users) nameKeys(of names) (keys []string) {
	if of.ExternalID != "" {
		keys = append(keys, store.Key("scim-name", us.provider.Key+"\x00externalId\x00"+of.ExternalID))
	}
	if of.UserName != "" {
		keys = append(keys, store.Key("scim-name", us.provider.Key+"\x00userName\x00"+asciicase.Lower(of.UserName)))
	}
	return keys
}

func (us *users) newRecord() *storedUser {
	return &storedUser{id: strconv.FormatInt(store.Now(us.store).UnixNano(), 36) + "-" + rand.Text(), Active: new(true)}
}

// load returns a User, or errUserNotFound.
func (us *users) load(ctx context.Context, id string) (*storedUser, error) {
	if strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errUserNotFound
	}
	value, err := us.store.Get(ctx, us.prefix()+id)
	if errors.Is(err, store.ErrNotFound) {
		err = errUserNotFound
	}
	if err != nil {
		return nil, err
	}
	u, err := store.FromJSON[storedUser](value)
	if err == nil {
		u.id, u.raw = id, value
	}
	return u, err
}

// owner returns the User that has a name, or nil.
func (us *users) owner(ctx context.Context, nameKey string) (*storedUser, error) {
	values, err := store.ReadValues(ctx, us.store, nameKey)
	if err != nil || values[0] == nil {
		return nil, err
	}
	u, err := us.load(ctx, string(values[0]))
	if errors.Is(err, errUserNotFound) || err == nil && !slices.Contains(us.nameKeys(u.names), nameKey) {
		return nil, nil // outdated entry of a concurrent change
	}
	return u, err
}

// find returns the User in a filter, or nil. People who have an account but were never provisioned become Users, because
// providers change existing people by the id that a filter returns.
func (us *users) find(ctx context.Context, filter string) (u *storedUser, err error) {
	wanted, err := parseFilter(filter)
	if err != nil {
		return nil, err
	}
	err = store.Retry(ctx, func() (err error) {
		if u, err = us.owner(ctx, us.nameKeys(wanted)[0]); u == nil && err == nil {
			u, err = us.adopt(ctx, wanted)
		}
		return err
	})
	return u, err
}

// adopt returns the User for the account with a wanted name. The User may have another name. If the account has no User, adopt
// stores one. It returns nil if no account has a wanted name.
func (us *users) adopt(ctx context.Context, wanted names) (*storedUser, error) {
	of, accounts, err := us.identify(ctx, wanted)
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	of.UserName = cmp.Or(accounts[0].UserName, of.UserName, of.Subject)
	existing, err := us.owner(ctx, us.nameKeys(names{UserName: of.UserName})[0])
	switch {
	case err != nil, existing != nil && (existing.Subject == of.Subject || existing.Subject == ""):
		return existing, err
	case existing != nil: // another person had the name
		of.UserName = cmp.Or(wanted.UserName, of.Subject)
	}
	u := us.newRecord()
	u.names = of
	return u, us.save(ctx, u, u, nil)
}

// page returns a page of the Users, and their total number. The first User has the index 1.
func (us *users) page(ctx context.Context, start, count int) (found []*storedUser, total int, err error) {
	keys, err := us.store.List(ctx, us.prefix())
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(keys)
	from := min(start-1, len(keys))
	for _, key := range keys[from:min(from+count, len(keys))] {
		u, err := us.load(ctx, strings.TrimPrefix(key, us.prefix()))
		switch {
		case err == nil:
			found = append(found, u)
		case !errors.Is(err, errUserNotFound): // else deleted meanwhile
			return nil, 0, err
		}
	}
	return found, len(keys), nil
}

// add stores a new User. A User that is created inactive ends the person's access first, so that failures can be retried.
func (us *users) add(ctx context.Context, u *storedUser, deactivates bool) error {
	of, accounts, err := us.identify(ctx, u.names)
	if err != nil {
		return err
	}
	u.names = of
	return us.save(ctx, u, u, func() error {
		if !deactivates {
			return nil
		}
		return us.deprovision(ctx, accounts, false)
	})
}

// change changes or deletes a User and returns its new state. Access ends before the User is stored, so that failures can be
// retried, and a conflict does not preserve access.
func (us *users) change(ctx context.Context, u *storedUser, input userInput, deleted bool) (*storedUser, error) {
	next, deactivates := *u, deleted
	accounts, err := us.findPerson(ctx, u.names)
	if err == nil && !deleted {
		deactivates, err = next.apply(input)
	}
	if err == nil && deactivates {
		err = us.deprovision(ctx, accounts, deleted)
	}
	switch {
	case err != nil:
		return nil, err
	case deleted:
		return nil, us.save(ctx, u, nil, nil)
	}
	next.names, err = us.rename(ctx, u.names, next.names, accounts)
	if err == nil {
		err = us.save(ctx, u, &next, nil)
	}
	return &next, err
}

func (us *users) deprovision(ctx context.Context, accounts []people.StoredPerson, deleted bool) error {
	const reason = "the identity provider deactivated or deleted the person (SCIM)"
	audit.RecordSessionEndReason(ctx, reason)
	return us.deprovisioner.RevokeAccounts(ctx, us.provider, accounts, reason, deleted)
}

// save stores the next state of a User; nil deletes it. A new User has no stored value. The optional do is called before
// anything is stored, but only if no other User has one of the names.
func (us *users) save(ctx context.Context, u, next *storedUser, do func() error) error {
	change, after := &store.Call{Op: store.Take, Key: us.prefix() + u.id}, names{}
	if next != nil {
		value, err := store.ToJSON(next)
		if err != nil {
			return err
		}
		change, after = store.ReplaceCall(change.Key, u.raw, value, store.Forever), next.names
	}
	calls, err := us.nameCalls(ctx, u, after)
	if err == nil && (u.raw == nil || next == nil) {
		var count *store.Call
		count, err = us.countCall(ctx, next != nil)
		calls = append(calls, count)
	}
	if err == nil && do != nil {
		err = do()
	}
	if err == nil {
		err = us.store.Do(ctx, append(calls, change)...)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = errUserNotFound
	}
	return err
}

// nameCalls returns the calls that change the names of a User. The error is errTaken if another User has one of them.
func (us *users) nameCalls(ctx context.Context, u *storedUser, after names) (calls []*store.Call, err error) {
	wanted := us.nameKeys(after)
	keys := slices.Compact(slices.Sorted(slices.Values(append(us.nameKeys(u.names), wanted...))))
	values, err := store.ReadValues(ctx, us.store, keys...)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		isOwn, isWanted := string(values[i]) == u.id, slices.Contains(wanted, key)
		switch {
		case isOwn && !isWanted:
			calls = append(calls, store.DeleteCalls(key)...)
		case !isOwn && isWanted:
			other, err := us.owner(ctx, key)
			if err != nil || other != nil {
				return nil, cmp.Or(err, error(errTaken))
			}
			calls = append(calls, store.ReplaceCall(key, values[i], []byte(u.id), store.Forever))
		}
	}
	return calls, nil
}

// countCall returns the call that changes the number of Users by one.
func (us *users) countCall(ctx context.Context, added bool) (*store.Call, error) {
	key := "scim-users:" + us.provider.Key
	values, err := store.ReadValues(ctx, us.store, key)
	if err != nil {
		return nil, err
	}
	count, _ := strconv.Atoi(string(values[0])) // 0 if missing
	if count--; added {
		count += 2
	}
	if added && count > maxUsers {
		return nil, errTooMany
	}
	return store.ReplaceCall(key, values[0], []byte(strconv.Itoa(count)), store.Forever), nil
}

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

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
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

// A User has an entry, and an entry with its id for each of its names. Ids sort by creation.
func userPrefix(p *people.Provider) string         { return "scim-user:" + p.Key + ":" }
func userKey(p *people.Provider, id string) string { return userPrefix(p) + id }

// nameKeys returns the keys of the entries for names. User names are case-insensitive (RFC 7643 §4.1.1), but only in ASCII like
// those of accounts.
func nameKeys(p *people.Provider, of names) (keys []string) {
	if of.ExternalID != "" {
		keys = append(keys, store.Key("scim-name", p.Key+"\x00externalId\x00"+of.ExternalID))
	}
	if of.UserName != "" {
		keys = append(keys, store.Key("scim-name", p.Key+"\x00userName\x00"+strings.Map(lower, of.UserName)))
	}
	return keys
}

func lower(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		r += 'a' - 'A'
	}
	return r
}

func (s *service) newRecord() *storedUser {
	return &storedUser{id: strconv.FormatInt(store.Now(s.store).UnixNano(), 36) + "-" + rand.Text(), Active: new(true)}
}

// load returns a User, or errUserNotFound.
func (s *service) load(ctx context.Context, p *people.Provider, id string) (*storedUser, error) {
	if strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errUserNotFound
	}
	value, err := s.store.Get(ctx, userKey(p, id))
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
func (s *service) owner(ctx context.Context, p *people.Provider, nameKey string) (*storedUser, error) {
	values, err := store.ReadValues(ctx, s.store, nameKey)
	if err != nil || values[0] == nil {
		return nil, err
	}
	u, err := s.load(ctx, p, string(values[0]))
	if errors.Is(err, errUserNotFound) || err == nil && !slices.Contains(nameKeys(p, u.names), nameKey) {
		return nil, nil // left behind by a change that was faster
	}
	return u, err
}

// find returns the User in a filter, or nil. People who have an account but were never provisioned become Users, because
// providers change existing people by the id that a filter returns.
func (s *service) find(ctx context.Context, p *people.Provider, filter string) (u *storedUser, err error) {
	wanted, err := parseFilter(filter)
	if err != nil {
		return nil, err
	}
	err = store.Retry(ctx, func() (err error) {
		if u, err = s.owner(ctx, p, nameKeys(p, wanted)[0]); u == nil && err == nil {
			u, err = s.adopt(ctx, p, wanted)
		}
		return err
	})
	return u, err
}

// adopt returns the User of a person who has an account, which may have another name. Otherwise, it stores a User. The result is
// nil if nobody has the name.
func (s *service) adopt(ctx context.Context, p *people.Provider, wanted names) (*storedUser, error) {
	of, accounts, err := s.identify(ctx, p, wanted)
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	of.UserName = cmp.Or(accounts[0].UserName, of.UserName, of.Subject)
	existing, err := s.owner(ctx, p, nameKeys(p, names{UserName: of.UserName})[0])
	switch {
	case err != nil, existing != nil && (existing.Subject == of.Subject || existing.Subject == ""):
		return existing, err
	case existing != nil: // another person had the name
		of.UserName = cmp.Or(wanted.UserName, of.Subject)
	}
	u := s.newRecord()
	u.names = of
	return u, s.save(ctx, p, u, u, nil)
}

// page returns a page of the Users, and their total number. The first User has the index 1.
func (s *service) page(ctx context.Context, p *people.Provider, start, count int) (users []*storedUser, total int, err error) {
	keys, err := s.store.List(ctx, userPrefix(p))
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(keys)
	from := min(start-1, len(keys))
	for _, key := range keys[from:min(from+count, len(keys))] {
		u, err := s.load(ctx, p, strings.TrimPrefix(key, userPrefix(p)))
		switch {
		case err == nil:
			users = append(users, u)
		case !errors.Is(err, errUserNotFound): // else deleted meanwhile
			return nil, 0, err
		}
	}
	return users, len(keys), nil
}

// save stores the next state of a User; nil deletes it. A new User has no stored value. do is called if no other User has one of
// the names, before anything is stored; it may be nil.
func (s *service) save(ctx context.Context, p *people.Provider, u, next *storedUser, do func() error) error {
	change, after := &store.Call{Op: store.Take, Key: userKey(p, u.id)}, names{}
	if next != nil {
		value, err := store.ToJSON(next)
		if err != nil {
			return err
		}
		change, after = store.ReplaceCall(change.Key, u.raw, value, store.Forever), next.names
	}
	calls, err := s.nameCalls(ctx, p, u, after)
	if err == nil && (u.raw == nil || next == nil) {
		var count *store.Call
		count, err = s.countCall(ctx, p, next != nil)
		calls = append(calls, count)
	}
	if err == nil && do != nil {
		err = do()
	}
	if err == nil {
		err = s.store.Do(ctx, append(calls, change)...)
	}
	if errors.Is(err, store.ErrNotFound) {
		err = errUserNotFound
	}
	return err
}

// nameCalls returns the calls that change the names of a User. The error is errTaken if another User has one of them.
func (s *service) nameCalls(ctx context.Context, p *people.Provider, u *storedUser, after names) (calls []*store.Call, err error) {
	wanted := nameKeys(p, after)
	keys := slices.Compact(slices.Sorted(slices.Values(append(nameKeys(p, u.names), wanted...))))
	values, err := store.ReadValues(ctx, s.store, keys...)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		isOwn, isWanted := string(values[i]) == u.id, slices.Contains(wanted, key)
		switch {
		case isOwn && !isWanted:
			calls = append(calls, store.DeleteCalls(key)...)
		case !isOwn && isWanted:
			other, err := s.owner(ctx, p, key)
			if err != nil || other != nil {
				return nil, cmp.Or(err, error(errTaken))
			}
			calls = append(calls, store.ReplaceCall(key, values[i], []byte(u.id), store.Forever))
		}
	}
	return calls, nil
}

// countCall returns the call that changes the number of Users by one.
func (s *service) countCall(ctx context.Context, p *people.Provider, added bool) (*store.Call, error) {
	key := "scim-users:" + p.Key
	values, err := store.ReadValues(ctx, s.store, key)
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

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
	values, err := store.ReadValues(ctx, s.store, userKey(p, id))
	if err != nil {
		return nil, err
	}
	u, err := store.FromJSON[storedUser](values[0])
	if u == nil && err == nil {
		return nil, errUserNotFound
	}
	if err == nil {
		u.id, u.raw = id, values[0]
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

// find returns the User in a filter. People who have an account but were never provisioned become Users, because providers
// change existing people by the id that a filter returns.
func (s *service) find(ctx context.Context, p *people.Provider, filter string) (found []*storedUser, err error) {
	wanted, err := parseFilter(filter)
	if err != nil {
		return nil, err
	}
	err = store.Retry(ctx, func() error {
		u, err := s.owner(ctx, p, nameKeys(p, wanted)[0])
		if u == nil && err == nil {
			u, err = s.adopt(ctx, p, wanted)
		}
		if found = nil; u != nil {
			found = []*storedUser{u}
		}
		return err
	})
	return found, err
}

// adopt returns the User of a person who has an account, which may have another name. Otherwise, it stores a User. The result is
// nil if nobody has the name.
func (s *service) adopt(ctx context.Context, p *people.Provider, wanted names) (*storedUser, error) {
	of, accounts, err := s.identify(ctx, p, wanted)
	if err != nil || len(accounts) == 0 {
		return nil, err
	}
	of.UserName = cmp.Or(accounts[0].UserName, of.UserName, of.ExternalID)
	existing, err := s.owner(ctx, p, nameKeys(p, names{UserName: of.UserName})[0])
	if err != nil || existing != nil && existing.Subject == of.Subject {
		return existing, err
	}
	u := s.newRecord()
	u.names = of
	calls, err := s.addCalls(ctx, p, u, true)
	if err != nil {
		return nil, err
	}
	return u, s.store.Do(ctx, calls...)
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

// addCalls returns the calls that store a new User. With skipTaken, names that other Users have are allowed, but continue to
// lead to these Users.
func (s *service) addCalls(ctx context.Context, p *people.Provider, u *storedUser, skipTaken bool) ([]*store.Call, error) {
	value, err := store.ToJSON(u)
	if err != nil {
		return nil, err
	}
	calls, err := s.nameCalls(ctx, p, u.id, names{}, u.names, skipTaken)
	if err != nil {
		return nil, err
	}
	count, err := s.countCall(ctx, p, 1)
	return append(calls, count, &store.Call{Op: store.Add, Key: userKey(p, u.id), Value: value, TTL: store.Forever}), err
}

// replace stores the new state of a User.
func (s *service) replace(ctx context.Context, p *people.Provider, u, next *storedUser) error {
	value, err := store.ToJSON(next)
	if err != nil {
		return err
	}
	calls, err := s.nameCalls(ctx, p, u.id, u.names, next.names, false)
	if err != nil {
		return err
	}
	return s.store.Do(ctx, append(calls, store.ReplaceCall(userKey(p, u.id), u.raw, value, store.Forever))...)
}

// remove deletes a User.
func (s *service) remove(ctx context.Context, p *people.Provider, u *storedUser) error {
	calls, err := s.nameCalls(ctx, p, u.id, u.names, names{}, false)
	if err != nil {
		return err
	}
	count, err := s.countCall(ctx, p, -1)
	if err != nil {
		return err
	}
	err = s.store.Do(ctx, append(calls, count, &store.Call{Op: store.Take, Key: userKey(p, u.id)})...)
	if errors.Is(err, store.ErrNotFound) {
		err = errUserNotFound
	}
	return err
}

// nameCalls returns the calls that change the names of a User. The error is errTaken if another User has one of them.
func (s *service) nameCalls(ctx context.Context, p *people.Provider, id string, before, after names, skipTaken bool) (calls []*store.Call, err error) {
	wanted := nameKeys(p, after)
	keys := slices.Compact(slices.Sorted(slices.Values(append(nameKeys(p, before), wanted...))))
	values, err := store.ReadValues(ctx, s.store, keys...)
	for i, key := range keys {
		if err != nil {
			return nil, err
		}
		var other *storedUser
		isOwn := string(values[i]) == id
		switch {
		case isOwn && !slices.Contains(wanted, key):
			calls = append(calls, store.DeleteCalls(key)...)
			continue
		case isOwn || !slices.Contains(wanted, key):
			continue
		}
		if other, err = s.owner(ctx, p, key); other != nil && !skipTaken {
			return nil, errTaken
		}
		if other == nil {
			calls = append(calls, store.ReplaceCall(key, values[i], []byte(id), store.Forever))
		}
	}
	return calls, err
}

// countCall returns the call that changes the number of Users.
func (s *service) countCall(ctx context.Context, p *people.Provider, change int) (*store.Call, error) {
	key := "scim-users:" + p.Key
	values, err := store.ReadValues(ctx, s.store, key)
	if err != nil {
		return nil, err
	}
	count, _ := strconv.Atoi(string(values[0])) // 0 if missing
	if count += change; change > 0 && count > maxUsers {
		return nil, errTooMany
	}
	return store.ReplaceCall(key, values[0], []byte(strconv.Itoa(max(0, count))), store.Forever), nil
}

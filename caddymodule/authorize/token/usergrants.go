package token

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// UserGrant describes an app's access on behalf of a person, for operators.
type UserGrant struct {
	User       string    `json:"user"`               // sub of the person
	UserName   string    `json:"user_name"`          // user name or verified address at the identity provider, otherwise sub
	Term       string    `json:"term"`               // unambiguous term for the person ([people.StoredPerson.Term])
	Name       string    `json:"name"`               // display name of the person
	ClientID   string    `json:"client_id"`          // client_id of the app
	ClientName string    `json:"client_name"`        // display name of the app
	Scope      []string  `json:"scope"`              // accessible scope
	Patients   []string  `json:"patients,omitempty"` // ids of the patients with accessible records
	Since      time.Time `json:"since"`              // start of the access
	LastUsedAt time.Time `json:"last_used"`          // time of the last token, accurate to an hour
	Until      time.Time `json:"until,omitzero"`     // expiry; omitted if the access ends with the session
}

// GrantFilter selects the grants to list. Empty fields match every grant.
type GrantFilter struct {
	User     string // sub of the person
	ClientID string // client_id of the app
	Name     string // part of the person's display name or user name; case is ignored
}

// ListGrants returns the apps that currently have access, ordered by person. Stored consent alone is no access. Without
// [GrantFilter].User, its run time is proportional to the size of the store.
func (as *Apps) ListGrants(ctx context.Context, filter GrantFilter) ([]UserGrant, error) {
	grants, users := []UserGrant{}, []string{filter.User}
	if filter.User == "" {
		var err error
		if users, err = as.usersWithAccess(ctx); err != nil {
			return nil, err
		}
	}
	for _, user := range users {
		person, err := as.families.accounts.Find(ctx, user)
		if err == nil && person != nil && filter.matchesName(person) {
			grants, err = as.appendGrants(ctx, grants, person, filter.ClientID)
		}
		if err != nil {
			return nil, err
		}
	}
	return grants, nil
}

func (f GrantFilter) matchesName(person *people.User) bool {
	text := strings.ToLower(person.Name + "\n" + cmp.Or(person.ProviderName(), person.ID))
	return strings.Contains(text, strings.ToLower(f.Name))
}

// usersWithAccess returns the sorted subs of the people with a session or a refresh token.
func (as *Apps) usersWithAccess(ctx context.Context) ([]string, error) {
	users := map[string]bool{}
	sessions, err := session.Listing{Sessions: as.sessions}.List(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		users[s.User] = true
	}
	keys, err := as.families.durable.List(ctx, familyKey(""))
	if err != nil {
		return nil, err
	}
	err = store.EachBatch(ctx, as.families.durable, keys, func(batch []*refreshFamily) error {
		for _, f := range batch {
			users[f.Grant.User] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(users)), err
}

// appendGrants appends the access of one app, or of all apps if clientID is empty, on behalf of a person.
func (as *Apps) appendGrants(ctx context.Context, grants []UserGrant, person *people.User, clientID string) ([]UserGrant, error) {
	apps, err := as.List(ctx, person.ID)
	identity := people.Finder{Accounts: as.families.accounts}.Describe(ctx, person.ID)
	for _, app := range apps {
		if app.LastUsedAt.IsZero() || clientID != "" && app.Client.ID != clientID { // consent has no time of use
			continue
		}
		grant := UserGrant{
			User: person.ID, UserName: cmp.Or(identity.UserName, person.ID), Term: people.StoredPerson{Person: identity, User: person.ID}.Term(),
			Name: person.Label().Name, ClientID: app.Client.ID, ClientName: app.Client.DisplayName(), Scope: app.Scope,
			Since: app.Since, LastUsedAt: app.LastUsedAt, Until: app.Until,
		}
		for _, p := range app.Patients {
			grant.Patients = append(grant.Patients, p.Patient)
		}
		grants = append(grants, grant)
	}
	return grants, err
}

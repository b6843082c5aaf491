package scim

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// SCIM schemas (RFC 7643 §8.7, RFC 7644 §3).
const (
	userSchema   = "urn:ietf:params:scim:schemas:core:2.0:User"
	configSchema = "urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig"
	listSchema   = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	errorSchema  = "urn:ietf:params:scim:api:messages:2.0:Error"
)

// scimType is the scimType of an error response (RFC 7644 §3.12). It is wrapped in an [oauth2.Error].
type scimType string

// Error implements error.
func (t scimType) Error() string { return string(t) }

func invalidValue(detail string) error {
	return &oauth2.Error{Code: "invalid_request", Description: detail, Err: scimType("invalidValue")}
}

// names are the names that a provider uses for a person. They are part of the id of a User, so a User is stored only when it is
// renamed.
type names struct {
	ExternalID string `json:"e,omitempty"`
	UserName   string `json:"u,omitempty"`

	// Subject is the person's sub at the provider if they had a gateway account when the id was issued. Otherwise, the id
	// belongs to the first person who has the name after NamedAfter, in Unix nanoseconds.
	Subject    string `json:"s,omitempty"`
	NamedAfter int64  `json:"t,omitempty"`
}

const maxName = 255 // in bytes

func (n names) check() error {
	if n.ExternalID+n.UserName == "" || len(n.ExternalID) > maxName || len(n.UserName) > maxName || strings.ContainsFunc(n.ExternalID+n.UserName, unicode.IsControl) {
		return invalidValue("userName or externalId is missing, too long or malformed")
	}
	return nil
}

func (n names) id() string {
	text, _ := json.Marshal(n) // cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseID parses an id returned by names.id.
func parseID(id string) (n names, err error) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err != nil || json.Unmarshal(text, &n) != nil || n.check() != nil || n.Subject == "" && n.NamedAfter == 0 {
		return n, &oauth2.Error{Code: "invalid_request", Description: "user not found", Status: http.StatusNotFound}
	}
	return n, nil
}

// user is a SCIM User (RFC 7643 §4.1).
type user struct {
	Schemas    []string          `json:"schemas"`
	ID         string            `json:"id"`
	ExternalID string            `json:"externalId,omitempty"`
	UserName   string            `json:"userName"`
	Active     bool              `json:"active"`
	Meta       map[string]string `json:"meta"`
}

// userInput is a User or a PATCH request (RFC 7644 §3.5.2) from a provider. Other attributes are ignored.
type userInput struct {
	ExternalID string          `json:"externalId"`
	UserName   string          `json:"userName"`
	Active     json.RawMessage `json:"active"`
	Operations []operation     `json:"Operations"`
}

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

func (u *userInput) names() names { return names{ExternalID: u.ExternalID, UserName: u.UserName} }

// setAttribute sets an attribute by its name, which may be prefixed with its schema.
func (u *userInput) setAttribute(attribute string, value json.RawMessage) error {
	switch strings.TrimPrefix(strings.ToLower(attribute), strings.ToLower(userSchema)+":") {
	case "active":
		u.Active = value
	case "username":
		return json.Unmarshal(value, &u.UserName)
	case "externalid":
		return json.Unmarshal(value, &u.ExternalID)
	}
	return nil
}

// patchedAttributes returns the attributes that a PATCH request sets. Okta puts their names in the value, Entra ID in the path.
func (u *userInput) patchedAttributes() (set userInput, err error) {
	for _, o := range u.Operations {
		members := map[string]json.RawMessage{o.Path: o.Value}
		switch op := strings.ToLower(o.Op); {
		case op == "remove":
			continue
		case op != "add" && op != "replace":
			return set, &oauth2.Error{Code: "invalid_request", Description: "op must be add, replace or remove", Err: scimType("invalidSyntax")}
		case o.Path == "" && json.Unmarshal(o.Value, &members) != nil:
			return set, invalidValue("value must be an object if path is missing")
		}
		for name, value := range members {
			if set.setAttribute(name, value) != nil {
				return set, invalidValue("userName and externalId must be strings")
			}
		}
	}
	return set, nil
}

// isInactive reports whether the attribute active is false. Its default is true. Entra ID has sent the string "False".
func (u *userInput) isInactive() (bool, error) {
	switch strings.ToLower(strings.Trim(string(u.Active), `"`)) {
	case "", "true":
		return false, nil
	case "false":
		return true, nil
	}
	return false, invalidValue("active must be true or false")
}

// parseFilter parses userName eq "…" or externalId eq "…" (RFC 7644 §3.4.2.2). Providers send only these filters to find a
// person.
func parseFilter(text string) (names, error) {
	attribute, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	operator, literal, _ := strings.Cut(strings.TrimSpace(rest), " ")
	var wanted userInput
	if err := wanted.setAttribute(attribute, json.RawMessage(literal)); err != nil || !strings.EqualFold(operator, "eq") || wanted.names() == (names{}) {
		return names{}, &oauth2.Error{Code: "invalid_request", Description: `only the filters userName eq "…" and externalId eq "…" are supported`, Err: scimType("invalidFilter")}
	}
	return wanted.names(), wanted.names().check()
}

// renameTTL is how long the names of a renamed User are stored: longer than any employment.
const renameTTL = 50 * 366 * 24 * time.Hour

var errAmbiguous = &oauth2.Error{
	Code: "invalid_request", Status: http.StatusConflict, Err: scimType("uniqueness"),
	Description: "several users match: map externalId to the sub of your ID tokens, or to the claim of the option sub",
}

// identify binds names to one person: the person with the externalId as sub at the provider or the gateway; otherwise the
// person with the userName; otherwise the first person who later has the name.
func (s *service) identify(ctx context.Context, p *people.Provider, of names) (names, []people.StoredPerson, error) {
	of.Subject, of.NamedAfter = "", store.Now(s.store).UnixNano()
	accounts, err := s.findAccounts(ctx, p, of, s.deprovisioner.People.FindByName)
	for _, account := range accounts {
		if account.Subject != accounts[0].Subject {
			return of, nil, errAmbiguous
		}
		of.Subject, of.NamedAfter = account.Subject, 0
	}
	return of, accounts, err
}

// findAccounts returns the accounts with the externalId or, if there are none, the accounts that byName finds.
func (s *service) findAccounts(ctx context.Context, p *people.Provider, of names, byName func(context.Context, *people.Provider, string) ([]people.StoredPerson, error)) (accounts []people.StoredPerson, err error) {
	if of.ExternalID != "" {
		accounts, err = s.deprovisioner.People.FindByID(ctx, p, of.ExternalID)
	}
	if of.UserName != "" && len(accounts) == 0 && err == nil {
		accounts, err = byName(ctx, p, of.UserName)
	}
	return accounts, err
}

// findPerson returns the accounts of the person to whom the id was issued, and their current names.
func (s *service) findPerson(ctx context.Context, p *people.Provider, id string, of names) (names, []people.StoredPerson, error) {
	renamed, err := store.GetJSON[names](ctx, s.store, userKey(p, id))
	if err != nil {
		return of, nil, err
	}
	of = *cmp.Or(renamed, &of)
	if of.Subject != "" {
		accounts, err := s.deprovisioner.People.FindBySubject(ctx, p, of.Subject)
		return of, accounts, err
	}
	accounts, err := s.findAccounts(ctx, p, of, func(ctx context.Context, p *people.Provider, name string) ([]people.StoredPerson, error) {
		return s.deprovisioner.People.FindFirstNamed(ctx, p, name, time.Unix(0, of.NamedAfter))
	})
	if errors.Is(err, people.ErrAmbiguous) {
		err = errAmbiguous
	}
	return of, accounts, err
}

// rename stores the current names of a User. It also stores the person, if the person was not known when the id was issued.
func (s *service) rename(ctx context.Context, p *people.Provider, id string, of, to names, accounts []people.StoredPerson) (names, error) {
	next, err := of, error(nil)
	next.ExternalID, next.UserName = cmp.Or(to.ExternalID, of.ExternalID), cmp.Or(to.UserName, of.UserName)
	switch {
	case len(accounts) > 0:
		next.Subject, next.NamedAfter = accounts[0].Subject, 0
	case of.Subject == "" && next != of:
		next, _, err = s.identify(ctx, p, next)
	}
	for _, account := range accounts {
		if err == nil && of.UserName != "" {
			err = people.Rename(ctx, s.deprovisioner.People.Accounts, account.ID, of.UserName, next.UserName)
		}
	}
	if err != nil || next == of {
		return next, err
	}
	value, err := store.ToJSON(next)
	if err == nil {
		err = s.store.Put(ctx, userKey(p, id), value, renameTTL)
	}
	return next, err
}

func userKey(p *people.Provider, id string) string { return store.Key("scim-user", p.Key+"\x00"+id) }

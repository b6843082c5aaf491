package scim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// SCIM schemas (RFC 7643 §8.7, RFC 7644 §3).
const (
	userSchema  = "urn:ietf:params:scim:schemas:core:2.0:User"
	groupSchema = "urn:ietf:params:scim:schemas:core:2.0:Group"
	listSchema  = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
	errorSchema = "urn:ietf:params:scim:api:messages:2.0:Error"
)

// scimType is the scimType of an error response (RFC 7644 §3.12). It is wrapped in an [oauth2.Error].
type scimType string

// Error implements error.
func (t scimType) Error() string { return string(t) }

func invalidValue(detail string) error {
	return &oauth2.Error{Code: "invalid_request", Description: detail, Err: scimType("invalidValue")}
}

// names contains a provider's names for a person, and identifies that person.
type names struct {
	ExternalID string `json:"e,omitempty"`
	UserName   string `json:"u,omitempty"`

	// Subject is the person's sub at the provider if they had a gateway account when the User was created. Otherwise, the
	// User represents the first person with this name after NamedAfter, in Unix nanoseconds.
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

// userInput is a User or a PATCH request (RFC 7644 §3.5.2) from a provider. Other attributes are ignored.
type userInput struct {
	ExternalID string          `json:"externalId"`
	UserName   string          `json:"userName"`
	Active     json.RawMessage `json:"active"`
	Operations []operation     `json:"Operations"`

	DisplayName string `json:"displayName"` // name of a Group

	isPatch bool
}

type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value"`
}

func (u *userInput) names() names { return names{ExternalID: u.ExternalID, UserName: u.UserName} }

// attributeName returns the name of an attribute in lower case, without its schema.
func attributeName(text string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), strings.ToLower(userSchema)+":")
}

// setAttribute sets an attribute by its name. null removes it.
func (u *userInput) setAttribute(attribute string, value json.RawMessage) error {
	switch attributeName(attribute) {
	case "active":
		u.Active = value
	case "username":
		u.UserName = ""
		return json.Unmarshal(value, &u.UserName)
	case "externalid":
		u.ExternalID = ""
		return json.Unmarshal(value, &u.ExternalID)
	}
	return nil
}

// patch executes the operations of a PATCH request. Okta puts the names of attributes in the value, Entra ID in the path.
func (u *userInput) patch() error {
	for _, o := range u.Operations {
		members := map[string]json.RawMessage{o.Path: o.Value}
		switch op := strings.ToLower(o.Op); {
		case op == "remove" && o.Path == "":
			return &oauth2.Error{Code: "invalid_request", Description: "remove requires a path", Err: scimType("noTarget")}
		case op == "remove":
			members[o.Path] = json.RawMessage("null")
		case op != "add" && op != "replace":
			return &oauth2.Error{Code: "invalid_request", Description: "op must be add, replace or remove", Err: scimType("invalidSyntax")}
		case o.Path == "" && json.Unmarshal(o.Value, &members) != nil:
			return invalidValue("value must be an object if path is missing")
		}
		for name, value := range members {
			if u.setAttribute(name, value) != nil {
				return invalidValue("userName and externalId must be strings")
			}
		}
	}
	return nil
}

// parseActive returns the attribute active; nil means that it has no value. Entra ID has sent the string "False", and
// [{"value":"False"}].
func (u *userInput) parseActive() (*bool, error) {
	active := u.Active
	var list []struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(active, &list) == nil && len(list) == 1 {
		active = list[0].Value
	}
	switch text := strings.ToLower(strings.Trim(string(active), `"`)); text {
	case "null":
		return nil, nil
	case "true", "false":
		return new(text == "true"), nil
	}
	return nil, invalidValue("active must be true or false")
}

// apply changes a User as requested and reports whether the request deactivates the person. PUT and POST without active mean
// active. PUT without externalId or userName keeps the current one, because it identifies the person.
func (u *storedUser) apply(input userInput) (deactivates bool, err error) {
	if input.isPatch {
		input.ExternalID, input.UserName, input.Active = u.ExternalID, u.UserName, nil
		err = input.patch()
	} else if input.Active == nil {
		input.Active = json.RawMessage("true")
	}
	if err == nil {
		err = input.names().check()
	}
	if err != nil {
		return false, err
	}
	if input.Active != nil {
		u.Active, err = input.parseActive()
		deactivates = u.Active != nil && !*u.Active
	}
	if !input.isPatch {
		input.ExternalID, input.UserName = cmp.Or(input.ExternalID, u.ExternalID), cmp.Or(input.UserName, u.UserName)
	}
	u.ExternalID, u.UserName = input.ExternalID, input.UserName
	return deactivates, err
}

// selectAttributes removes the attributes that the parameters attributes and excludedAttributes do not select (RFC 7644 §3.9).
func selectAttributes(resource map[string]any, query url.Values) map[string]any {
	included, excluded := attributeNames(query.Get("attributes")), attributeNames(query.Get("excludedAttributes"))
	maps.DeleteFunc(resource, func(name string, _ any) bool {
		name = strings.ToLower(name)
		isSelected := (len(included) == 0 || slices.Contains(included, name)) && !slices.Contains(excluded, name)
		return !isSelected && name != "id" && name != "schemas"
	})
	return resource
}

// attributeNames parses a list of attributes. A sub-attribute selects the entire attribute.
func attributeNames(list string) (names []string) {
	for text := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }) {
		name, _, _ := strings.Cut(attributeName(text), ".")
		names = append(names, name)
	}
	return names
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

var errAmbiguous = &oauth2.Error{
	Code: "invalid_request", Status: http.StatusConflict, Err: scimType("uniqueness"),
	Description: "several users match: map externalId to the sub of your ID tokens, or to the claim of the option sub",
}

// identify binds names to one person: the person with the externalId as sub at the provider or the gateway; otherwise the
// person with the userName; otherwise the first person who later has the name.
func (us *users) identify(ctx context.Context, of names) (names, []people.StoredPerson, error) {
	of.Subject, of.NamedAfter = "", store.Now(us.store).UnixNano()
	accounts, err := us.findAccounts(ctx, of, us.deprovisioner.People.FindByName)
	for _, account := range accounts {
		if account.Subject != accounts[0].Subject {
			return of, nil, errAmbiguous
		}
		of.Subject, of.NamedAfter = account.Subject, 0
	}
	return of, accounts, err
}

// findAccounts returns the accounts with the externalId or, if there are none, the accounts that byName finds.
func (us *users) findAccounts(ctx context.Context, of names, byName func(context.Context, *people.Provider, string) ([]people.StoredPerson, error)) (accounts []people.StoredPerson, err error) {
	if of.ExternalID != "" {
		accounts, err = us.deprovisioner.People.FindByID(ctx, us.provider, of.ExternalID)
	}
	if of.UserName != "" && len(accounts) == 0 && err == nil {
		accounts, err = byName(ctx, us.provider, of.UserName)
	}
	return accounts, err
}

// findPerson returns the accounts of the person that a User represents.
func (us *users) findPerson(ctx context.Context, of names) ([]people.StoredPerson, error) {
	if of.Subject != "" {
		return us.deprovisioner.People.FindBySubject(ctx, us.provider, of.Subject)
	}
	accounts, err := us.findAccounts(ctx, of, func(ctx context.Context, p *people.Provider, name string) ([]people.StoredPerson, error) {
		return us.deprovisioner.People.FindFirstNamed(ctx, p, name, time.Unix(0, of.NamedAfter))
	})
	if errors.Is(err, people.ErrAmbiguous) {
		err = errAmbiguous
	}
	return accounts, err
}

// rename renames the accounts of the person that a User represents. The returned names identify the person, even if the person
// was unknown when the User was created.
func (us *users) rename(ctx context.Context, of, next names, accounts []people.StoredPerson) (names, error) {
	var err error
	if next.ExternalID != of.ExternalID && next.ExternalID != "" { // may be the name of another person
		found, err := us.deprovisioner.People.FindByID(ctx, us.provider, next.ExternalID)
		if err != nil {
			return next, err
		}
		if len(found) > 0 {
			accounts = found
		}
	}
	switch {
	case len(accounts) > 0:
		next.Subject, next.NamedAfter = accounts[0].Subject, 0
	case of.Subject == "" && next != of:
		next, _, err = us.identify(ctx, next)
	}
	for _, account := range accounts {
		if err == nil && of.UserName != "" {
			err = people.Rename(ctx, us.deprovisioner.People.Accounts, account.ID, of.UserName, next.UserName)
		}
	}
	return next, err
}

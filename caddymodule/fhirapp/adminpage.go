package fhirapp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// administration is what the page of administrators changes: what the admin API does, by the same checks.
type administration struct{ app *App }

// administrationOf is the page of administrators for package authorize; nil for none.
func administrationOf(a *App) *authorize.Administration {
	if a.AdminPage == "" {
		return nil
	}
	return &authorize.Administration{Scope: a.AdminPage, Store: administration{a}}
}

// List returns the entries of a kind.
func (s administration) List(ctx context.Context, kind string) ([]authorize.AdminEntry, error) {
	entries, err := rosterChange{app: s.app, kind: roster.Kind(kind)}.list(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]authorize.AdminEntry, 0, len(entries))
	for _, e := range entries {
		shown, err := adminEntry(roster.Kind(kind), e)
		if err != nil {
			return nil, err
		}
		list = append(list, shown)
	}
	return list, nil
}

// adminEntry is an entry for the page. What a later version wrote may not be readable.
func adminEntry(kind roster.Kind, e rosterEntry) (shown authorize.AdminEntry, err error) {
	shown = authorize.AdminEntry{From: e.From, Since: e.Since, Waits: e.Waits, Secret: e.Has, Problem: e.Problem}
	config, err := json.Marshal(e.Config)
	if err != nil {
		return shown, err
	}
	var c Client
	var u User
	if kind == roster.Clients {
		err = json.Unmarshal(config, &c)
		shown.Fields = authorize.AdminFields{Title: c.Name, RedirectURIs: c.RedirectURIs, Scopes: c.Scopes, LaunchURI: c.LaunchURI}
	} else {
		err = json.Unmarshal(config, &u)
		shown.Fields = authorize.AdminFields{Title: u.DisplayName, Groups: u.Groups, FHIRUser: u.FHIRUser, Email: u.Email, Disabled: u.Disabled}
	}
	if shown.Name = e.Name; err != nil {
		shown.Problem = cmp.Or(shown.Problem, err.Error())
	}
	return shown, nil
}

// Change makes a change.
func (s administration) Change(ctx context.Context, c authorize.AdminChange) (string, error) {
	change := rosterChange{s.app, roster.Kind(c.Kind), c.Name}
	isPerson := change.kind == roster.Users
	var changed rosterEntry
	var err error
	switch {
	case c.Action == "add":
		changed, err = change.addFields(ctx, c)
	case c.Action == "edit":
		changed, err = change.edit(ctx, func(config json.RawMessage) ([]byte, error) {
			return json.Marshal(fieldsOf(change.kind, c.Fields, config))
		})
	case c.Action == "remove":
		changed, err = change.remove(ctx)
	case c.Action == "approve" && !isPerson:
		changed, err = change.approve(ctx)
	case c.Action == "secret" && !isPerson:
		changed, err = change.rotateSecret(ctx)
	case c.Action == "secret":
		changed, err = change.newPassword(ctx)
	default:
		err = badAdminRequest(errors.New("there is no such change"))
	}
	return changed.Secret, pageError(err)
}

// addFields adds an entry of the page. A person gets a random password.
func (c rosterChange) addFields(ctx context.Context, change authorize.AdminChange) (rosterEntry, error) {
	fields, password := fieldsOf(c.kind, change.Fields, nil), ""
	if c.kind == roster.Users {
		var err error
		if password, fields["password_hash"], err = newPassword(); err != nil {
			return rosterEntry{}, err
		}
		fields["name"] = c.name
	} else {
		fields["id"] = c.name
	}
	for member, value := range fields { // null means none, in a patch alone
		if value == nil {
			delete(fields, member)
		}
	}
	config, err := json.Marshal(fields)
	if err != nil {
		return rosterEntry{}, err
	}
	added, err := c.add(ctx, config, change.Secret)
	added.Secret = cmp.Or(added.Secret, password)
	return added, err
}

// newPassword gives a person of the store another password, which ends their sessions.
func (c rosterChange) newPassword(ctx context.Context) (rosterEntry, error) {
	password, hash, err := newPassword()
	if err != nil {
		return rosterEntry{}, err
	}
	changed, err := c.edit(ctx, func(json.RawMessage) ([]byte, error) { return json.Marshal(map[string]any{"password_hash": hash}) })
	changed.Secret = password
	return changed, err
}

// newPassword makes a password of 120 random bits, which nobody can guess from its hash.
func newPassword() (password, hash string, err error) {
	password = oauth2.RandomToken()[:20]
	hashed, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	return password, string(hashed), err
}

// fieldsOf are what the page says of an entry, as a JSON merge patch of what it was. Another e-mail address has not been
// verified.
func fieldsOf(kind roster.Kind, f authorize.AdminFields, was json.RawMessage) map[string]any {
	if kind == roster.Clients {
		return map[string]any{"name": text(f.Title), "redirect_uris": list(f.RedirectURIs), "scopes": list(f.Scopes), "launch_uri": text(f.LaunchURI)}
	}
	fields := map[string]any{
		"display_name": text(f.Title), "groups": list(f.Groups), "fhir_user": text(f.FHIRUser), "email": text(f.Email), "disabled": nil,
	}
	if f.Disabled {
		fields["disabled"] = true
	}
	var before User
	if err := json.Unmarshal(was, &before); err != nil || before.Email != f.Email {
		fields["email_verified"] = nil
	}
	return fields
}

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func list(words []string) any {
	if len(words) == 0 {
		return nil
	}
	return words
}

// pageError tells the administrator of a refusal what the admin API says.
func pageError(err error) error {
	var refused caddy.APIError
	if errors.As(rosterError(err), &refused) && refused.HTTPStatus != http.StatusInternalServerError {
		return &oauth2.Error{Code: "invalid_request", Description: refused.Err.Error(), Status: refused.HTTPStatus}
	}
	return err
}

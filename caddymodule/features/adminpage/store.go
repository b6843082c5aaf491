package adminpage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/crypto/bcrypt"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// Store contains the apps and users. Its methods return an [oauth2.Error] for errors that the administrator can correct.
type Store interface {
	// List returns the entries of the given kind ([Clients] or [Users]).
	List(ctx context.Context, kind string) ([]Entry, error)

	// Change makes a change. It returns the new secret or password, if any.
	Change(ctx context.Context, c Change) (secret string, err error)
}

// Kinds of entries.
const (
	Clients = "clients"
	Users   = "users"
)

// Origins of the entries that the page can change. It cannot change entries from other origins, such as the configuration.
const (
	Stored     = "store"
	Registered = "registration"
)

// Entry is an app or a user.
type Entry struct {
	From            string    // origin: configuration, [Stored] or [Registered]
	Since           time.Time // time when the entry was added, if known
	PendingApproval bool      // whether the app awaits approval
	Secret          bool      // whether the app has a secret, which can be replaced
	Problem         string    // why the entry is not active; "" if it is

	Fields
}

// Fields are the properties of an app or user that an administrator can set.
type Fields struct {
	Name  string // client_id, or user name
	Title string // display name

	RedirectURIs []string // redirect URIs of an app
	Scopes       []string // scopes that an app may be granted
	LaunchURI    string   // URL for launches from an EHR

	Groups   []string // groups of a user
	FHIRUser string   // the user's FHIR resource
	Email    string   // e-mail address of a user
	Disabled bool     // whether sign-in is disabled for the user
}

// Change is a change to an entry by an administrator.
type Change struct {
	Kind        string // [Clients] or [Users]
	Action      string // add, edit, remove, approve, or secret (new secret or password)
	WantsSecret bool   // whether a new app gets a secret
	Fields             // for add and edit: all fields; otherwise only the name
}

// digest identifies the version of an entry that the administrator saw, because self-registered apps can change their metadata.
func (e *Entry) digest() string {
	text, err := json.Marshal(e)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// managedStore is the Store of a [fhirapp.EntryManager].
type managedStore struct{ fhirapp.EntryManager }

// List implements [Store].
func (s managedStore) List(ctx context.Context, kind string) ([]Entry, error) {
	entries, err := s.EntryManager.List(ctx, kind)
	if err != nil {
		return nil, err
	}
	list := make([]Entry, 0, len(entries))
	for _, e := range entries {
		entry, err := convertEntry(kind, e)
		if err != nil {
			return nil, err
		}
		list = append(list, entry)
	}
	return list, nil
}

// convertEntry converts an entry for the page. If the configuration cannot be decoded, for example because a later version of
// the software wrote it, Problem contains the reason.
func convertEntry(kind string, e fhirapp.Entry) (entry Entry, err error) {
	entry = Entry{From: e.Origin, Since: e.AddedAt, PendingApproval: e.PendingApproval, Secret: e.HasSecret, Problem: e.Problem}
	config, err := json.Marshal(e.Config)
	if err != nil {
		return entry, err
	}
	var c fhirapp.Client
	var u fhirapp.User
	if kind == Clients {
		err = json.Unmarshal(config, &c)
		entry.Fields = Fields{Title: c.Name, RedirectURIs: c.RedirectURIs, Scopes: c.Scopes, LaunchURI: c.LaunchURI}
	} else {
		err = json.Unmarshal(config, &u)
		entry.Fields = Fields{Title: u.DisplayName, Groups: u.Groups, FHIRUser: u.FHIRUser, Email: u.Email, Disabled: u.Disabled}
	}
	if entry.Name = e.Name; err != nil {
		entry.Problem = cmp.Or(entry.Problem, err.Error())
	}
	return entry, nil
}

// Change implements [Store].
func (s managedStore) Change(ctx context.Context, c Change) (string, error) {
	isUser := c.Kind == Users
	var changed fhirapp.Entry
	var err error
	switch {
	case c.Action == "add":
		changed, err = s.addEntry(ctx, c)
	case c.Action == "edit":
		changed, err = s.Edit(ctx, c.Kind, c.Name, func(config json.RawMessage) ([]byte, error) {
			return json.Marshal(mergePatch(c.Kind, c.Fields, config))
		})
	case c.Action == "remove":
		changed, err = s.Remove(ctx, c.Kind, c.Name)
	case c.Action == "approve" && !isUser:
		changed, err = s.Approve(ctx, c.Name)
	case c.Action == "secret" && !isUser:
		changed, err = s.RotateSecret(ctx, c.Name)
	case c.Action == "secret":
		changed, err = s.renewPassword(ctx, c.Name)
	default:
		err = &oauth2.Error{Code: "invalid_request", Description: "unknown action", Status: http.StatusBadRequest}
	}
	return changed.Secret, convertError(err)
}

// addEntry adds an entry to the store. A user gets a random password.
func (s managedStore) addEntry(ctx context.Context, c Change) (fhirapp.Entry, error) {
	fields, password := mergePatch(c.Kind, c.Fields, nil), ""
	if c.Kind == Users {
		var err error
		if password, fields["password_hash"], err = newPassword(); err != nil {
			return fhirapp.Entry{}, err
		}
		fields["name"] = c.Name
	} else {
		fields["id"] = c.Name
	}
	for member, value := range fields { // in a JSON merge patch, null removes a member; a new entry must omit it
		if value == nil {
			delete(fields, member)
		}
	}
	config, err := json.Marshal(fields)
	if err != nil {
		return fhirapp.Entry{}, err
	}
	added, err := s.Add(ctx, c.Kind, config, c.WantsSecret)
	added.Secret = cmp.Or(added.Secret, password)
	return added, err
}

// renewPassword replaces the password of a user in the store. This ends the user's sessions.
func (s managedStore) renewPassword(ctx context.Context, name string) (fhirapp.Entry, error) {
	password, hash, err := newPassword()
	if err != nil {
		return fhirapp.Entry{}, err
	}
	changed, err := s.Edit(ctx, Users, name, func(json.RawMessage) ([]byte, error) { return json.Marshal(map[string]any{"password_hash": hash}) })
	changed.Secret = password
	return changed, err
}

// newPassword returns a password with 120 random bits, too many to guess it from its hash.
func newPassword() (password, hash string, err error) {
	password = oauth2.RandomToken()[:20]
	hashed, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	return password, string(hashed), err
}

// mergePatch returns the JSON merge patch that changes an entry's configuration was to the fields f. If the e-mail address
// changes, it becomes unverified.
func mergePatch(kind string, f Fields, was json.RawMessage) map[string]any {
	if kind == Clients {
		return map[string]any{"name": nullIfBlank(f.Title), "redirect_uris": nullIfEmpty(f.RedirectURIs), "scopes": nullIfEmpty(f.Scopes), "launch_uri": nullIfBlank(f.LaunchURI)}
	}
	fields := map[string]any{
		"display_name": nullIfBlank(f.Title), "groups": nullIfEmpty(f.Groups), "fhir_user": nullIfBlank(f.FHIRUser), "email": nullIfBlank(f.Email), "disabled": nil,
	}
	if f.Disabled {
		fields["disabled"] = true
	}
	var before fhirapp.User
	if err := json.Unmarshal(was, &before); err != nil || before.Email != f.Email {
		fields["email_verified"] = nil
	}
	return fields
}

func nullIfBlank(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func nullIfEmpty(words []string) any {
	if len(words) == 0 {
		return nil
	}
	return words
}

// convertError converts an error of the admin API to an error with the same text for the administrator.
func convertError(err error) error {
	var apiErr caddy.APIError
	if errors.As(err, &apiErr) && apiErr.HTTPStatus != http.StatusInternalServerError {
		return &oauth2.Error{Code: "invalid_request", Description: apiErr.Err.Error(), Status: apiErr.HTTPStatus}
	}
	return err
}

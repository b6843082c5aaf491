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

// Store contains the apps and users. An error that the administrator can correct is an [oauth2.Error].
type Store interface {
	// List returns the entries of a kind ([Clients] or [Users]).
	List(ctx context.Context, kind string) ([]Entry, error)

	// Change makes a change, and returns the new secret or password, if any.
	Change(ctx context.Context, c Change) (secret string, err error)
}

// The kinds of entries.
const (
	Clients = "clients"
	Users   = "users"
)

// Locations of entries outside of the configuration. The page changes no others.
const (
	Stored     = "store"
	Registered = "registration"
)

// Entry is an app or a user.
type Entry struct {
	From            string    // configuration, [Stored] or [Registered]
	Since           time.Time // time when the entry was added, if known
	PendingApproval bool      // the app awaits approval
	Secret          bool      // the app has a secret, which can be replaced
	Problem         string    // why the entry is not active

	Fields
}

// Fields are the properties of an app or user that an administrator can set.
type Fields struct {
	Name  string // client_id, or user name
	Title string // display name

	RedirectURIs []string // only of an app
	Scopes       []string // scopes that an app may be granted
	LaunchURI    string   // URL for launches from an EHR

	Groups   []string // only of a user
	FHIRUser string   // the user's FHIR resource
	Email    string   // e-mail address of a user
	Disabled bool     // a user must not sign in
}

// Change is a change to an entry by an administrator.
type Change struct {
	Kind        string // [Clients] or [Users]
	Action      string // add, edit, remove, approve, or secret for a new secret or password
	WantsSecret bool   // a new app gets a secret
	Fields             // the name; for add and edit, all fields
}

// digest identifies the version of an entry that the administrator saw, because a self-registered app can change its metadata.
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

// List returns the entries of a kind.
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

// convertEntry converts an entry for the page. It fails for entries that a later version of the software wrote.
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

// Change makes a change.
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

// addEntry adds an entry of the page. A user gets a random password.
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
	for member, value := range fields { // null means removal, but only in a patch
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

// renewPassword replaces the password of a user in the store, which ends their sessions.
func (s managedStore) renewPassword(ctx context.Context, name string) (fhirapp.Entry, error) {
	password, hash, err := newPassword()
	if err != nil {
		return fhirapp.Entry{}, err
	}
	changed, err := s.Edit(ctx, Users, name, func(json.RawMessage) ([]byte, error) { return json.Marshal(map[string]any{"password_hash": hash}) })
	changed.Secret = password
	return changed, err
}

// newPassword returns a password of 120 random bits, which cannot be guessed from its hash.
func newPassword() (password, hash string, err error) {
	password = oauth2.RandomToken()[:20]
	hashed, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	return password, string(hashed), err
}

// mergePatch returns the fields of an entry as a JSON merge patch of its previous configuration. A changed e-mail address
// becomes unverified.
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

// convertError converts a refusal by the admin API to an error with the same text for the administrator.
func convertError(err error) error {
	var apiErr caddy.APIError
	if errors.As(err, &apiErr) && apiErr.HTTPStatus != http.StatusInternalServerError {
		return &oauth2.Error{Code: "invalid_request", Description: apiErr.Err.Error(), Status: apiErr.HTTPStatus}
	}
	return err
}

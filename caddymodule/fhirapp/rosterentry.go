package fhirapp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// RosterEntry is a client or person, wherever it was added. Secrets and hashes are left out.
type RosterEntry struct {
	Name    string    `json:"name"`                    // the client_id, or the name to sign in with
	From    string    `json:"from"`                    // configuration, store or registration
	Since   time.Time `json:"since,omitzero"`          // when it was added
	Waits   bool      `json:"waits,omitempty"`         // for approval
	Has     bool      `json:"has_secret,omitempty"`    // a secret, of a client that can get another one
	Problem string    `json:"problem,omitempty"`       // why it is not in force
	Secret  string    `json:"client_secret,omitempty"` // a new one, which is shown this once
	Config  any       `json:"config,omitempty"`        // as in the JSON configuration
}

// resolveEntry adds a client or person of the store. Nothing of it is a placeholder: whoever may add people need not be
// able to read this machine's files.
func resolveEntry(to *authorize.Config, kind roster.Kind, e roster.Entry) error {
	switch kind {
	case roster.Clients:
		client, err := storedClient(e)
		to.Clients = append(to.Clients, client)
		return err
	case roster.Users:
		user, err := storedUser(e)
		to.Users = append(to.Users, user)
		return err
	}
	return fmt.Errorf("entries of kind %q are not known", kind)
}

func storedClient(e roster.Entry) (client.Client, error) {
	var c Client
	if err := unmarshalEntry(e.Config, &c); err != nil {
		return client.Client{}, err
	}
	switch {
	case c.Secret != "":
		return client.Client{}, errors.New("secret: the server makes the secrets of clients in the store; ask for one")
	case c.TLS != option.TLS{}:
		return client.Client{}, errors.New("ca, client_certificate, client_key: files of this machine are for clients in the Caddyfile")
	}
	stored, err := c.core()
	if err != nil {
		return client.Client{}, err
	}
	stored.SecretSHA256, stored.Generation = e.SecretSHA256, e.Generation
	return stored, nil
}

func storedUser(e roster.Entry) (people.User, error) {
	var u User
	if err := unmarshalEntry(e.Config, &u); err != nil {
		return people.User{}, err
	}
	if u.TOTPSecret != "" {
		return people.User{}, errors.New("totp_secret: people in the store set up their second factors themselves")
	}
	if err := checkPasswordHash(u.PasswordHash); err != nil {
		return people.User{}, err
	}
	user := u.withSecrets(u.PasswordHash, "")
	user.Generation = e.Generation
	return user, nil
}

// unmarshalEntry refuses members that are not known: a mistyped option must not be left out in silence.
func unmarshalEntry(config json.RawMessage, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

func listRoster(r *rosterRequest) (any, error) { return r.of.List(r.http.Context()) }

// List lists the clients or people, wherever they were added.
func (c RosterChange) List(ctx context.Context) ([]RosterEntry, error) {
	record, err := c.App.server.Record(ctx)
	if err != nil {
		return nil, err
	}
	entries := c.App.configured(c.Kind)
	for name, e := range record.Of(c.Kind) {
		entries = append(entries, c.stored(name, e))
	}
	if c.Kind != roster.Clients {
		return entries, nil
	}
	for _, source := range c.App.clientSources {
		registered, failed := source.Registered(ctx)
		err = errors.Join(err, failed)
		for _, c := range registered {
			entries = append(entries, RosterEntry{
				Name: c.Client.ID, From: "registration", Since: c.IssuedAt, Waits: c.Waits, Has: c.Secret,
				Config: client.Client{Name: c.Client.Name, RedirectURIs: c.Client.RedirectURIs, Scopes: c.Client.Scopes},
			})
		}
	}
	return entries, err
}

// ofSource does something about a client of a feature.
func (c RosterChange) ofSource(do func(ClientSource) error) error {
	for _, source := range c.App.clientSources {
		if err := do(source); !errors.Is(err, client.ErrNotRegistered) {
			return err
		}
	}
	return client.ErrNotRegistered
}

// configured are the entries of the configuration.
func (a *App) configured(kind roster.Kind) []RosterEntry {
	entries := []RosterEntry{}
	if kind == roster.Clients {
		for _, c := range a.Clients {
			c.Secret = ""
			entries = append(entries, RosterEntry{Name: c.ID, From: "configuration", Config: c})
		}
		return entries
	}
	for _, u := range a.Users {
		u.PasswordHash, u.TOTPSecret = "", ""
		entries = append(entries, RosterEntry{Name: u.Name, From: "configuration", Config: u})
	}
	return entries
}

// stored is an entry of the store without its hash.
func (c RosterChange) stored(name string, e roster.Entry) RosterEntry {
	entry := RosterEntry{Name: name, From: "store", Since: e.Since, Has: e.SecretSHA256 != nil}
	config := map[string]any{}
	if err := json.Unmarshal(e.Config, &config); err != nil {
		entry.Problem = err.Error()
	}
	maps.DeleteFunc(config, func(member string, _ any) bool { return strings.EqualFold(member, "password_hash") }) // as it is read
	if entry.Config = config; entry.Problem == "" {
		if err := c.App.server.Problem(c.Kind, name); err != nil {
			entry.Problem = err.Error()
		}
	}
	return entry
}

// RosterChange changes clients or people, or one of them: for the admin API, and for the page of administrators.
type RosterChange struct {
	App  *App        // the app that the entries belong to
	Kind roster.Kind // clients or people
	Name string      // of one; "" for all of the kind
}

// entry is the entry as an answer says it.
func (c RosterChange) entry() RosterEntry { return RosterEntry{Name: c.Name, From: "store"} }

// Add adds the client or person, a client with a secret if it is to have one.
func (c RosterChange) Add(ctx context.Context, config []byte, secret bool) (RosterEntry, error) {
	added := c.entry()
	added.Since = time.Now().UTC().Truncate(time.Second)
	entry := roster.Entry{Config: config, Since: added.Since}
	if c.Kind == roster.Clients && secret {
		added.Secret, entry.SecretSHA256 = newSecret()
	}
	return added, c.change(ctx, roster.Add(entry))
}

// Edit changes an entry by a JSON merge patch (RFC 7396), which may depend on what the entry is.
func (c RosterChange) Edit(ctx context.Context, patchOf func(json.RawMessage) ([]byte, error)) (RosterEntry, error) {
	return c.entry(), c.replace(ctx, func(e roster.Entry) (roster.Entry, error) {
		patch, err := patchOf(e.Config)
		if err != nil {
			return e, err
		}
		patched, err := jsonpatch.MergePatch(e.Config, patch)
		if err != nil {
			return e, badAdminRequest(err)
		}
		e.Config = patched
		if name, err := nameOf(c.Kind, patched); err != nil || name != c.Name {
			return e, badAdminRequest(cmp.Or(err, errors.New("a name stays as it is: add another entry")))
		}
		return e, nil
	})
}

// Remove removes an entry of the store, or a client that registered itself, and ends what it was given.
func (c RosterChange) Remove(ctx context.Context) (RosterEntry, error) {
	removed := c.entry()
	if err := c.endGrants(ctx); err != nil {
		return removed, err
	}
	err := c.change(ctx, roster.Remove())
	if errors.Is(err, roster.ErrUnknown) && c.Kind == roster.Clients {
		removed.From = "registration"
		if err = c.revokeClient(ctx); err == nil {
			err = c.ofSource(func(s ClientSource) error { return s.Remove(ctx, c.Name) })
		}
	}
	return removed, err
}

// Approve approves a client that registered itself.
func (c RosterChange) Approve(ctx context.Context) (RosterEntry, error) {
	err := c.ofSource(func(s ClientSource) error { return s.Approve(ctx, c.Name) })
	return RosterEntry{Name: c.Name, From: "registration"}, err
}

// RotateSecret gives a client a new secret.
func (c RosterChange) RotateSecret(ctx context.Context) (RosterEntry, error) {
	rotated := c.entry()
	var digest []byte
	rotated.Secret, digest = newSecret()
	err := c.replace(ctx, func(e roster.Entry) (roster.Entry, error) {
		if e.SecretSHA256 == nil {
			return e, badAdminRequest(errors.New("the client has no secret: it authenticates by keys, or not at all"))
		}
		e.SecretSHA256 = digest
		return e, nil
	})
	if errors.Is(err, roster.ErrUnknown) {
		rotated.From = "registration"
		err = c.ofSource(func(s ClientSource) (err error) {
			rotated.Secret, err = s.RotateSecret(ctx, c.Name)
			return err
		})
	}
	return rotated, err
}

// endGrants ends what the client or person of the store was given, and a person's second factors: whoever gets the name
// later must not inherit them.
func (c RosterChange) endGrants(ctx context.Context) error {
	record, err := c.App.server.Record(ctx)
	if err != nil {
		return err
	}
	if record.Get(c.Kind, c.Name) == nil || slices.ContainsFunc(c.App.configured(c.Kind), func(e RosterEntry) bool { return e.Name == c.Name }) {
		return nil // whose name the configuration got later keeps what they have
	}
	if c.Kind == roster.Users {
		return c.App.Server().EndUser(ctx, c.Name)
	}
	return c.revokeClient(ctx)
}

// revokeClient ends what a client was given. One that is not in force has been given nothing.
func (c RosterChange) revokeClient(ctx context.Context) error {
	_, err := c.App.Server().RevokeGrants(ctx, "", c.Name)
	if errors.Is(err, token.ErrUnknownHolder) {
		return nil
	}
	return err
}

func (c RosterChange) replace(ctx context.Context, alter func(roster.Entry) (roster.Entry, error)) error {
	return c.change(ctx, roster.Replace(alter))
}

func (c RosterChange) change(ctx context.Context, alter roster.Alteration) error {
	return c.App.server.Change(ctx, c.Kind, c.Name, alter)
}

// newSecret makes a client's secret.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// rosterEntry is a client or person, wherever it was added. Secrets and hashes are left out.
type rosterEntry struct {
	Name    string    `json:"name"`                    // the client_id, or the name to sign in with
	From    string    `json:"from"`                    // configuration, store or registration
	Since   time.Time `json:"since,omitzero"`          // when it was added
	Waits   bool      `json:"waits,omitempty"`         // for approval
	Problem string    `json:"problem,omitempty"`       // why it is not in force
	Secret  string    `json:"client_secret,omitempty"` // a new one, which is shown this once
	Config  any       `json:"config,omitempty"`
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

func storedClient(e roster.Entry) (authorize.Client, error) {
	var c Client
	if err := unmarshalEntry(e.Config, &c); err != nil {
		return authorize.Client{}, err
	}
	switch {
	case c.Secret != "":
		return authorize.Client{}, errors.New("secret: the server makes the secrets of clients in the store; ask for one")
	case c.TLS != option.TLS{}:
		return authorize.Client{}, errors.New("ca, client_certificate, client_key: files of this machine are for clients in the Caddyfile")
	}
	client := c.withSecret("")
	client.SecretSHA256 = e.SecretSHA256
	return client, nil
}

func storedUser(e roster.Entry) (authorize.User, error) {
	var u User
	if err := unmarshalEntry(e.Config, &u); err != nil {
		return authorize.User{}, err
	}
	if u.TOTPSecret != "" {
		return authorize.User{}, errors.New("totp_secret: people in the store set up their second factors themselves")
	}
	if err := checkPasswordHash(u.PasswordHash); err != nil {
		return authorize.User{}, err
	}
	return u.withSecrets(u.PasswordHash, ""), nil
}

// unmarshalEntry refuses members that are not known: a mistyped option must not be left out in silence.
func unmarshalEntry(config json.RawMessage, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

func listRoster(r *rosterRequest) (any, error) { return r.list(r.http.Context()) }

// list lists the clients or people, wherever they were added.
func (c rosterChange) list(ctx context.Context) ([]rosterEntry, error) {
	record, err := c.app.server.Record(ctx)
	if err != nil {
		return nil, err
	}
	entries := c.app.configured(c.kind)
	for name, e := range record.Entries[c.kind] {
		entries = append(entries, c.stored(name, e))
	}
	if c.kind != roster.Clients {
		return entries, nil
	}
	registered, err := c.app.Server().Clients().Registered(ctx)
	for _, c := range registered {
		entries = append(entries, rosterEntry{
			Name: c.Client.ID, From: "registration", Since: c.IssuedAt, Waits: c.Waits,
			Config: Client{Name: c.Client.Name, RedirectURIs: c.Client.RedirectURIs, Scopes: c.Client.Scopes},
		})
	}
	return entries, err
}

// configured are the entries of the configuration.
func (a *App) configured(kind roster.Kind) []rosterEntry {
	entries := []rosterEntry{}
	if kind == roster.Clients {
		for _, c := range a.Clients {
			c.Secret = ""
			entries = append(entries, rosterEntry{Name: c.ID, From: "configuration", Config: c})
		}
		return entries
	}
	for _, u := range a.Users {
		u.PasswordHash, u.TOTPSecret = "", ""
		entries = append(entries, rosterEntry{Name: u.Name, From: "configuration", Config: u})
	}
	return entries
}

// stored is an entry of the store without its hash.
func (c rosterChange) stored(name string, e roster.Entry) rosterEntry {
	entry := rosterEntry{Name: name, From: "store", Since: e.Since}
	config := map[string]any{}
	if err := json.Unmarshal(e.Config, &config); err != nil {
		entry.Problem = err.Error()
	}
	delete(config, "password_hash")
	if entry.Config = config; entry.Problem == "" {
		if err := c.app.server.Problem(c.kind, name); err != nil {
			entry.Problem = err.Error()
		}
	}
	return entry
}

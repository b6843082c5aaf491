package caddymodule

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"slices"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/roster"
)

// rosterChange changes clients or people, or one of them: for the admin API, and for the page of administrators.
type rosterChange struct {
	app  *App
	kind roster.Kind
	name string
}

// entry is the entry as an answer says it.
func (c rosterChange) entry() rosterEntry { return rosterEntry{Name: c.name, From: "store"} }

// add adds the client or person, a client with a secret if it is to have one.
func (c rosterChange) add(ctx context.Context, config []byte, secret bool) (rosterEntry, error) {
	added := c.entry()
	added.Since = time.Now().UTC().Truncate(time.Second)
	entry := roster.Entry{Config: config, Since: added.Since}
	if c.kind == roster.Clients && secret {
		added.Secret, entry.SecretSHA256 = newSecret()
	}
	return added, c.change(ctx, func(record *roster.Record) error { return record.Add(c.kind, c.name, entry) })
}

// edit changes an entry by a JSON merge patch (RFC 7396), which may depend on what the entry is.
func (c rosterChange) edit(ctx context.Context, patchOf func(json.RawMessage) ([]byte, error)) (rosterEntry, error) {
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
		if name, err := nameOf(c.kind, patched); err != nil || name != c.name {
			return e, badAdminRequest(cmp.Or(err, errors.New("a name stays as it is: add another entry")))
		}
		return e, nil
	})
}

// remove removes an entry of the store, or a client that registered itself, and ends what it was given.
func (c rosterChange) remove(ctx context.Context) (rosterEntry, error) {
	removed := c.entry()
	if err := c.endGrants(ctx); err != nil {
		return removed, err
	}
	err := c.change(ctx, func(record *roster.Record) error { return record.Remove(c.kind, c.name) })
	if errors.Is(err, roster.ErrUnknown) && c.kind == roster.Clients {
		removed.From = "registration"
		err = c.app.Server().Clients().Remove(ctx, c.name)
	}
	return removed, err
}

// approve approves a client that registered itself.
func (c rosterChange) approve(ctx context.Context) (rosterEntry, error) {
	return rosterEntry{Name: c.name, From: "registration"}, c.app.Server().Clients().Approve(ctx, c.name)
}

// rotateSecret gives a client a new secret.
func (c rosterChange) rotateSecret(ctx context.Context) (rosterEntry, error) {
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
		rotated.Secret, err = c.app.Server().Clients().RotateSecret(ctx, c.name)
	}
	return rotated, err
}

// endGrants ends what the client or person of the store was given, and a person's second factors: whoever gets the name
// later must not inherit them.
func (c rosterChange) endGrants(ctx context.Context) error {
	record, err := c.app.server.Record(ctx)
	if err != nil {
		return err
	}
	_, stored := record.Entries[c.kind][c.name]
	if !stored || slices.ContainsFunc(c.app.configured(c.kind), func(e rosterEntry) bool { return e.Name == c.name }) {
		return nil // whose name the configuration got later keeps what they have
	}
	user, client := c.name, ""
	if c.kind == roster.Clients {
		user, client = client, user
	}
	if _, err = c.app.Server().RevokeGrants(ctx, user, client); err == nil && user != "" {
		_, _, err = c.app.Server().ResetFactors(ctx, user)
	}
	if errors.Is(err, authorize.ErrUnknownHolder) { // it is not in force, and has been given nothing
		return nil
	}
	return err
}

func (c rosterChange) replace(ctx context.Context, alter func(roster.Entry) (roster.Entry, error)) error {
	return c.change(ctx, func(record *roster.Record) error { return record.Replace(c.kind, c.name, alter) })
}

func (c rosterChange) change(ctx context.Context, alter func(*roster.Record) error) error {
	return c.app.server.Change(ctx, c.kind, c.name, alter)
}

// newSecret makes a client's secret.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

package registration

import (
	"context"
	"errors"
	"io/fs"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

var errNoSecret = errors.New("the client has no secret: it authenticates by keys, or not at all")

// Registered returns the registered clients, and an error if some of them cannot be read.
func (r *Registration) Registered(ctx context.Context) (found []client.RegisteredClient, err error) {
	ids, err := r.shelf.ids(ctx)
	for _, id := range ids {
		c, failed := r.load(ctx, id)
		if err = errors.Join(err, failed); c == nil || failed != nil {
			continue
		}
		found = append(found, client.RegisteredClient{Client: c.Client, IssuedAt: c.IssuedAt, Waits: r.Approval && !c.Approved, Secret: c.SecretDigest != nil})
	}
	return found, err
}

// Approve lets a client that registered itself be used, as it is registered now.
func (r *Registration) Approve(ctx context.Context, id string) error {
	return r.changeRegistered(ctx, id, func(c *registered) error {
		c.Approved = true
		return nil
	})
}

// RotateSecret gives a client that registered itself a new secret. The old one ends.
func (r *Registration) RotateSecret(ctx context.Context, id string) (secret string, err error) {
	secret = oauth2.RandomToken()
	return secret, r.changeRegistered(ctx, id, func(c *registered) error {
		if c.SecretDigest == nil {
			return errNoSecret
		}
		c.SecretDigest = client.Digest(secret)
		return nil
	})
}

// Remove deletes a client that registered itself. Its tokens end with it.
func (r *Registration) Remove(ctx context.Context, id string) error {
	if err := r.changeRegistered(ctx, id, func(*registered) error { return nil }); err != nil {
		return err
	}
	return r.remove(ctx, id)
}

func (r *Registration) changeRegistered(ctx context.Context, id string, alter func(*registered) error) error {
	if !registeredID.MatchString(id) {
		return client.ErrNotRegistered
	}
	_, err := r.change(ctx, id, alter)
	if errors.Is(err, errRegistrationToken) || errors.Is(err, fs.ErrNotExist) {
		return client.ErrNotRegistered
	}
	return err
}

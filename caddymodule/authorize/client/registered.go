package client

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// ErrNotRegistered says that no client with that client_id has registered itself.
var ErrNotRegistered = errors.New("no client with this client_id has registered itself")

var errNoSecret = errors.New("the client has no secret: it authenticates by keys, or not at all")

// RegisteredClient is a client that registered itself, as the operator sees it.
type RegisteredClient struct {
	Client   Client    // as registered, within what the configuration allows
	IssuedAt time.Time // when it registered
	Waits    bool      // for the operator's approval
	Secret   bool      // it has one
}

// Registered returns the clients that registered themselves. Those that cannot be read are left out, and an error says so.
func (r *Registry) Registered(ctx context.Context) (found []RegisteredClient, err error) {
	if r.Registrar == nil {
		return nil, nil
	}
	ids, err := r.Registrar.shelf.ids(ctx)
	for _, id := range ids {
		c, failed := r.Registrar.load(ctx, id)
		if err = errors.Join(err, failed); c == nil || failed != nil {
			continue
		}
		found = append(found, RegisteredClient{c.Client, c.IssuedAt, r.Registrar.Approval && !c.Approved, c.SecretDigest != nil})
	}
	return found, err
}

// Approve lets a client that registered itself be used, as it is registered now.
func (r *Registry) Approve(ctx context.Context, id string) error {
	return r.changeRegistered(ctx, id, func(c *registered) error {
		c.Approved = true
		return nil
	})
}

// RotateSecret gives a client that registered itself a new secret. The old one ends.
func (r *Registry) RotateSecret(ctx context.Context, id string) (secret string, err error) {
	secret = oauth2.RandomToken()
	return secret, r.changeRegistered(ctx, id, func(c *registered) error {
		if c.SecretDigest == nil {
			return errNoSecret
		}
		c.SecretDigest = digestOf(secret)
		return nil
	})
}

// Remove deletes a client that registered itself. Its tokens end with it.
func (r *Registry) Remove(ctx context.Context, id string) error {
	if err := r.changeRegistered(ctx, id, func(*registered) error { return nil }); err != nil {
		return err
	}
	return r.Registrar.remove(ctx, id)
}

func (r *Registry) changeRegistered(ctx context.Context, id string, alter func(*registered) error) error {
	if r.Registrar == nil || !registeredID.MatchString(id) {
		return ErrNotRegistered
	}
	_, err := r.Registrar.change(ctx, id, alter)
	if errors.Is(err, errRegistrationToken) || errors.Is(err, fs.ErrNotExist) {
		return ErrNotRegistered
	}
	return err
}

package fhirapp

import (
	"context"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/servertest"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() { caddy.RegisterModule(new(newcomers)) }

// newcomers is a feature with one client, [servertest.Newcomer], that has registered itself and waits for the operator's approval.
// Subdirective: newcomers.
type newcomers struct {
	mu     sync.Mutex
	client *client.Client // nil once it was removed
	grants client.GrantTypes
}

func (*newcomers) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.newcomers", New: func() caddy.Module { return new(newcomers) }}
}

func (*newcomers) Subdirectives() (fields option.Block, repeatable []string) {
	return option.Block{"newcomers": func(d *caddyfile.Dispenser) error { return nil }}, nil
}

func (n *newcomers) Configure(_ *App, c *authorize.Config) error {
	newcomer := servertest.Newcomer(func(c *client.Client) { c.Waits, c.Name = true, "New" })
	n.client, c.Features = &newcomer, append(c.Features, n)
	return nil
}

func (n *newcomers) Extend(core *authorize.Core) error {
	core.Clients.Sources = append(core.Clients.Sources, n)
	n.grants = core.Clients.GrantTypes
	return n.client.Complete(n.grants)
}

func (*newcomers) Any() *client.Client { return new(client.Client) }

func (n *newcomers) Find(_ context.Context, id string) (*client.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil || id != n.client.ID {
		return nil, nil
	}
	found := *n.client
	return &found, nil
}

func (n *newcomers) IDs(ctx context.Context) (ids []string, err error) {
	all, err := n.Registered(ctx)
	for _, c := range all {
		ids = append(ids, c.Client.ID)
	}
	return ids, err
}

func (n *newcomers) Registered(ctx context.Context) ([]client.RegisteredClient, error) {
	c, err := n.Find(ctx, servertest.NewcomerID)
	if c == nil {
		return nil, err
	}
	return []client.RegisteredClient{{Client: *c, Waits: c.Waits, Secret: true}}, err
}

// change changes the client, if it is there and has the id.
func (n *newcomers) change(id string, change func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil || id != n.client.ID {
		return client.ErrNotRegistered
	}
	if change(); n.client == nil {
		return nil
	}
	return n.client.Complete(n.grants)
}

func (n *newcomers) Approve(_ context.Context, id string) error {
	return n.change(id, func() { n.client.Waits = false })
}

func (n *newcomers) RotateSecret(_ context.Context, id string) (string, error) {
	const secret = "a new secret"
	return secret, n.change(id, func() { n.client.SecretSHA256 = client.Digest(secret) })
}

func (n *newcomers) Remove(_ context.Context, id string) error {
	return n.change(id, func() { n.client = nil })
}

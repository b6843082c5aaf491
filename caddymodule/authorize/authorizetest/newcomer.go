package authorizetest

import (
	"context"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// NewcomerID is the client_id of [Newcomer].
const NewcomerID = "registered-0123456789abcdef0123456789abcdef"

// NewcomerSecret is the secret of [Newcomer].
const NewcomerSecret = "newcomer-secret"

// Newcomer returns a client that has registered itself, altered by change.
func Newcomer(change func(*client.Client)) client.Client {
	c := client.Client{
		ID: NewcomerID, Name: "Newcomer", SecretSHA256: client.Digest(NewcomerSecret), RedirectURIs: []string{Callback}, ResponseTypes: []string{"code"},
		Scopes: []string{"user/*.rs"}, PKCE: client.PKCERequired, Consent: client.ConsentRequired, Compat: []string{client.ErrorDescription}, Registered: true,
	}
	if change != nil {
		change(&c)
	}
	return c
}

// Newcomers are clients that have registered themselves, in memory. They are a feature and its [client.Source].
type Newcomers []client.Client

// WithNewcomers adds clients that have registered themselves.
func WithNewcomers(clients ...client.Client) func(*authorize.Config) {
	return func(c *authorize.Config) { c.Features = append(c.Features, Newcomers(clients)) }
}

// Extend implements [authorize.Feature].
func (n Newcomers) Extend(core *authorize.Core) (err error) {
	core.Clients.Sources = append(core.Clients.Sources, n)
	for i := range n {
		c := &n[i]
		if c.Keys, err = c.NewKeys(core.Config.Logger, c.Transport); err == nil {
			err = c.Complete(core.Clients.GrantTypes)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Find implements [client.Source].
func (n Newcomers) Find(_ context.Context, id string) (*client.Client, error) {
	for _, c := range n {
		if c.ID == id {
			return &c, nil
		}
	}
	return nil, nil
}

// IDs implements [client.Source].
func (n Newcomers) IDs(context.Context) (ids []string, err error) {
	for _, c := range n {
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// Any implements [client.Source].
func (n Newcomers) Any() *client.Client {
	c := &client.Client{ResponseTypes: []string{"code"}}
	for _, one := range n {
		c.Scopes = append(c.Scopes, one.Scopes...)
	}
	return c
}

var _ client.Source = Newcomers(nil)

// WaitingNewcomer is a feature with one client, [Newcomer], pending approval by the operator.
type WaitingNewcomer struct {
	mu     sync.Mutex
	client *client.Client // nil after removal
	grants client.GrantTypes
}

// AddTo adds the feature to a configuration.
func (n *WaitingNewcomer) AddTo(c *authorize.Config) {
	newcomer := Newcomer(func(c *client.Client) { c.PendingApproval, c.Name = true, "New" })
	n.client, c.Features = &newcomer, append(c.Features, n)
}

// Extend implements [authorize.Feature].
func (n *WaitingNewcomer) Extend(core *authorize.Core) error {
	core.Clients.Sources = append(core.Clients.Sources, n)
	n.grants = core.Clients.GrantTypes
	return n.client.Complete(n.grants)
}

// Any implements [client.Source].
func (*WaitingNewcomer) Any() *client.Client { return new(client.Client) }

// Find implements [client.Source].
func (n *WaitingNewcomer) Find(_ context.Context, id string) (*client.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil || id != n.client.ID {
		return nil, nil
	}
	found := *n.client
	return &found, nil
}

// IDs implements [client.Source].
func (n *WaitingNewcomer) IDs(ctx context.Context) (ids []string, err error) {
	all, err := n.Registered(ctx)
	for _, c := range all {
		ids = append(ids, c.Client.ID)
	}
	return ids, err
}

// Registered returns the client unless it was removed.
func (n *WaitingNewcomer) Registered(ctx context.Context) ([]client.RegisteredClient, error) {
	c, err := n.Find(ctx, NewcomerID)
	if c == nil {
		return nil, err
	}
	return []client.RegisteredClient{{Client: *c, PendingApproval: c.PendingApproval, Secret: true}}, err
}

// change applies a change if the client exists and has the id.
func (n *WaitingNewcomer) change(id string, change func()) error {
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

// Approve approves the client.
func (n *WaitingNewcomer) Approve(_ context.Context, id string) error {
	return n.change(id, func() { n.client.PendingApproval = false })
}

// RotateSecret replaces the client's secret.
func (n *WaitingNewcomer) RotateSecret(_ context.Context, id string) (string, error) {
	const secret = "a new secret"
	return secret, n.change(id, func() { n.client.SecretSHA256 = client.Digest(secret) })
}

// Remove removes the client.
func (n *WaitingNewcomer) Remove(_ context.Context, id string) error {
	return n.change(id, func() { n.client = nil })
}

package authorizetest

import (
	"context"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// SelfRegisteredID is the client_id of [SelfRegisteredClient].
const SelfRegisteredID = "registered-0123456789abcdef0123456789abcdef"

// SelfRegisteredSecret is the secret of [SelfRegisteredClient].
const SelfRegisteredSecret = "newcomer-secret"

// SelfRegisteredClient returns a self-registered client, altered by change.
func SelfRegisteredClient(change func(*client.Client)) client.Client {
	c := client.Client{
		ID: SelfRegisteredID, Name: "Newcomer", SecretSHA256: client.DigestSecret(SelfRegisteredSecret), RedirectURIs: []string{Callback}, ResponseTypes: []string{"code"},
		Scopes: []string{"user/*.rs"}, PKCE: client.PKCERequired, Consent: client.ConsentRequired, Compat: []string{client.CompatErrorDescription}, SelfRegistered: true,
	}
	if change != nil {
		change(&c)
	}
	return c
}

// SelfRegisteredClients is a feature with self-registered clients in memory, and their [client.Source].
type SelfRegisteredClients []client.Client

// WithSelfRegistered returns an option that adds self-registered clients to a configuration.
func WithSelfRegistered(clients ...client.Client) func(*authorize.Config) {
	return func(c *authorize.Config) { c.Features = append(c.Features, SelfRegisteredClients(clients)) }
}

// Extend implements [authorize.Feature].
func (n SelfRegisteredClients) Extend(core *authorize.Core) (err error) {
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
func (n SelfRegisteredClients) Find(_ context.Context, id string) (*client.Client, error) {
	for _, c := range n {
		if c.ID == id {
			return &c, nil
		}
	}
	return nil, nil
}

// IDs implements [client.Source].
func (n SelfRegisteredClients) IDs(context.Context) (ids []string, err error) {
	for _, c := range n {
		ids = append(ids, c.ID)
	}
	return ids, nil
}

// MostPermissive implements [client.Source].
func (n SelfRegisteredClients) MostPermissive() *client.Client {
	c := &client.Client{ResponseTypes: []string{"code"}}
	for _, one := range n {
		c.Scopes = append(c.Scopes, one.Scopes...)
	}
	return c
}

var _ client.Source = SelfRegisteredClients(nil)

// PendingClient is a feature with one client, [SelfRegisteredClient], which is pending approval by the operator.
type PendingClient struct {
	mu     sync.Mutex
	client *client.Client // nil after removal
	grants client.GrantTypes
}

// AddTo adds the feature to a configuration.
func (n *PendingClient) AddTo(c *authorize.Config) {
	pending := SelfRegisteredClient(func(c *client.Client) { c.PendingApproval, c.Name = true, "New" })
	n.client, c.Features = &pending, append(c.Features, n)
}

// Extend implements [authorize.Feature].
func (n *PendingClient) Extend(core *authorize.Core) error {
	core.Clients.Sources = append(core.Clients.Sources, n)
	n.grants = core.Clients.GrantTypes
	return n.client.Complete(n.grants)
}

// MostPermissive implements [client.Source].
func (*PendingClient) MostPermissive() *client.Client { return new(client.Client) }

// Find implements [client.Source].
func (n *PendingClient) Find(_ context.Context, id string) (*client.Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.client == nil || id != n.client.ID {
		return nil, nil
	}
	found := *n.client
	return &found, nil
}

// IDs implements [client.Source].
func (n *PendingClient) IDs(ctx context.Context) (ids []string, err error) {
	all, err := n.ListClients(ctx)
	for _, c := range all {
		ids = append(ids, c.Client.ID)
	}
	return ids, err
}

// ListClients returns the client unless it was removed.
func (n *PendingClient) ListClients(ctx context.Context) ([]client.RegisteredClient, error) {
	c, err := n.Find(ctx, SelfRegisteredID)
	if c == nil {
		return nil, err
	}
	return []client.RegisteredClient{{Client: *c, PendingApproval: c.PendingApproval, HasSecret: true}}, err
}

// change calls change if the client exists and has the id. Otherwise it returns an error.
func (n *PendingClient) change(id string, change func()) error {
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
func (n *PendingClient) Approve(_ context.Context, id string) error {
	return n.change(id, func() { n.client.PendingApproval = false })
}

// RotateSecret replaces the client's secret.
func (n *PendingClient) RotateSecret(_ context.Context, id string) (string, error) {
	const secret = "a new secret"
	return secret, n.change(id, func() { n.client.SecretSHA256 = client.DigestSecret(secret) })
}

// Remove removes the client.
func (n *PendingClient) Remove(_ context.Context, id string) error {
	return n.change(id, func() { n.client = nil })
}

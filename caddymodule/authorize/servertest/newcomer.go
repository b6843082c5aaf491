package servertest

import (
	"context"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
)

// NewcomerID is the client_id of [Newcomer].
const NewcomerID = "registered-0123456789abcdef0123456789abcdef"

// NewcomerSecret is the secret of [Newcomer].
const NewcomerSecret = "newcomer-secret"

// Newcomer is a client that has registered itself, as change alters it.
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

// Newcomers are clients that have registered themselves, in memory: they are a feature of a server, and its [client.Source].
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

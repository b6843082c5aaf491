package authorize

import (
	"fmt"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

// entries are the local users and the configured clients of a server, which does not change them.
type entries struct {
	directory *people.Directory
	clients   *client.Registry
	origins   *origins

	// providers are the identity providers of an earlier server with the same configuration, by key, with their cached
	// discovery documents and keys. Nil for the first server.
	providers map[string]*people.Provider
}

func newEntries(c *Config) (*entries, error) {
	linked := slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.LinkEmail })
	directory, err := people.NewDirectory(c.Users, c.Passwords, linked)
	if err != nil {
		return nil, err
	}
	clients := client.NewRegistry(token.GrantTypes())
	directory.Known, clients.Known = c.Known, c.Known
	e := &entries{directory: directory, clients: clients, origins: &origins{redirects: new(snapshotmap.Map[int])}}
	for _, client := range c.Clients {
		if err := e.addClient(c, client); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// addClient adds a client. None may be named like a user: their tokens would have the same sub, and one pass for the
// other (RFC 9700 §4.15).
func (e *entries) addClient(c *Config, client client.Client) error {
	if e.clients.Configured(client.ID) == nil && e.directory.User(client.ID) != nil {
		return fmt.Errorf("client %s has the name of a user: their tokens would have the same sub", client.ID)
	}
	for _, key := range client.IdentityProviders {
		if key != people.Local && !slices.ContainsFunc(c.IdentityProviders, func(p people.IdentityProvider) bool { return p.Key == key }) {
			return fmt.Errorf("client %q: unknown idp %q", client.ID, key)
		}
	}
	if err := e.clients.Add(client, c.Logger); err != nil {
		return err
	}
	e.origins.count(e.clients.Configured(client.ID), 1)
	return nil
}

// A Draft builds a [Server] with the configuration of another one, and other users and clients. The cost of a change and of
// the server does not depend on the number of users and clients. It is not safe for concurrent use.
type Draft struct {
	config  Config
	entries entries
}

// Draft returns a draft that begins with the users and clients of the server, which stays as it is.
func (s *Server) Draft() *Draft {
	return &Draft{s.config, entries{s.entries.directory.Clone(), s.entries.clients.Clone(), s.entries.origins.clone(), s.people.Accounts.Providers}}
}

// AddUser adds a user. It returns an error, and changes nothing, if the user is invalid or clashes with another user or a
// client.
func (d *Draft) AddUser(u people.User) error {
	if d.entries.clients.Configured(u.ID) != nil {
		return fmt.Errorf("user %s has the name of a client: their tokens would have the same sub", u.ID)
	}
	return d.entries.directory.Add(u)
}

// AddClient adds a client. It returns an error, and changes nothing, if the client is invalid or clashes with another client
// or a user.
func (d *Draft) AddClient(c client.Client) error { return d.entries.addClient(&d.config, c) }

// RemoveUser removes a user by name, if there is one.
func (d *Draft) RemoveUser(name string) { d.entries.directory.Remove(name) }

// RemoveClient removes a client by client_id, if there is one.
func (d *Draft) RemoveClient(id string) {
	if c := d.entries.clients.Configured(id); c != nil {
		d.entries.origins.count(c, -1)
		d.entries.clients.RemoveConfigured(id)
	}
}

// Server returns the server. The draft must not be used any more.
func (d *Draft) Server() (*Server, error) { return assemble(d.config, &d.entries) }

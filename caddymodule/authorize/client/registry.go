package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/boundedcache"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/namecheck"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
)

// A Source provides clients in addition to the configured ones. Features add sources to [Registry.Sources].
type Source interface {
	// Find returns the client with a client_id, or nil. The client may be pending approval.
	Find(ctx context.Context, id string) (*Client, error)

	// IDs returns the client_ids of all clients.
	IDs(ctx context.Context) ([]string, error)

	// MostPermissive returns a client with all permissions that a client of this source can have, for discovery documents.
	MostPermissive() *Client
}

// ErrNotRegistered means that no source has a client with the given client_id.
var ErrNotRegistered = errors.New("no self-registered client has this client_id")

// RegisteredClient is a self-registered client, as shown to operators.
type RegisteredClient struct {
	Client          Client    // registered settings, limited to the permissions in the configuration
	IssuedAt        time.Time // registration time
	PendingApproval bool      // whether the client is pending approval by the operator
	HasSecret       bool      // whether the client has a secret
}

// Registry finds clients by client_id.
//
// To change a registry, change its [Registry.Clone]. The cost does not depend on the number of clients. The original must not
// be changed after it has been cloned.
type Registry struct {
	configured    *snapshotmap.Map[*Client] // by client_id
	launcherCount int                       // number of configured clients with LaunchContext

	GrantTypes GrantTypes // grant types that clients may list
	Sources    []Source   // sources of additional clients

	// CheckComplete is called if a client is unknown. It returns an error if the list of clients may be incomplete. Default:
	// the list is complete.
	CheckComplete func(context.Context) error
}

// errNotApproved is the error for a client that is pending approval.
var errNotApproved = &oauth2.Error{
	Code: "unauthorized_client", Description: "this app has not been approved by the operator of this server yet", Status: http.StatusForbidden,
}

// Find returns a configured or self-registered client by its client_id, or nil.
func (r *Registry) Find(ctx context.Context, id string) (*Client, error) {
	c, err := r.findWithPending(ctx, id)
	if err == nil && c != nil && c.PendingApproval {
		return nil, errNotApproved
	}
	return c, err
}

// findWithPending is like Find, but includes clients pending approval. Only the authenticated client may learn this.
func (r *Registry) findWithPending(ctx context.Context, id string) (*Client, error) {
	if c := r.FindConfigured(id); c != nil {
		return c, nil
	}
	for _, source := range r.Sources {
		if c, err := source.Find(ctx, id); c != nil || err != nil {
			return c, err
		}
	}
	if r.CheckComplete != nil {
		return nil, r.CheckComplete(ctx)
	}
	return nil, nil
}

// RecordClient records the client of a request for the audit log, including clients pending approval. It reports whether the
// client exists.
func (r *Registry) RecordClient(ctx context.Context, id string) bool {
	if id == "" {
		return false
	}
	c, err := r.findWithPending(ctx, id)
	if c == nil || err != nil {
		return false
	}
	audit.RecordClient(ctx, id)
	return true
}

// IDs returns the client_ids of all clients.
func (r *Registry) IDs(ctx context.Context) (ids []string, err error) {
	for _, source := range r.Sources {
		found, findErr := source.IDs(ctx)
		ids, err = append(ids, found...), errors.Join(err, findErr)
	}
	for id := range r.configured.All() {
		ids = append(ids, id)
	}
	return ids, err
}

// NewRegistry returns a registry without clients, in which clients may list the grant types in grants.
func NewRegistry(grants GrantTypes) *Registry {
	return &Registry{configured: new(snapshotmap.Map[*Client]), GrantTypes: grants}
}

// Clone returns a copy of the registry that can be changed.
func (r *Registry) Clone() *Registry {
	clone := *r
	clone.configured = r.configured.Clone()
	return &clone
}

// FindConfigured returns the configured client with a client_id, or nil.
func (r *Registry) FindConfigured(id string) *Client { return r.configured.Get(id) }

// AllConfigured iterates over the configured clients by client_id.
func (r *Registry) AllConfigured() iter.Seq2[string, *Client] { return r.configured.All() }

// SupportsEHRLaunch reports whether a configured client may create launch contexts.
func (r *Registry) SupportsEHRLaunch() bool { return r.launcherCount > 0 }

// RemoveConfigured removes the configured client with a client_id, if present.
func (r *Registry) RemoveConfigured(id string) {
	if c := r.FindConfigured(id); c != nil {
		r.configured.Delete(id)
		r.launcherCount -= c.launcherCount()
	}
}

// launcherCount returns 1 if the client may create launch contexts, otherwise 0.
func (c *Client) launcherCount() int {
	if c.LaunchContext {
		return 1
	}
	return 0
}

// Add adds a configured client. If the client is invalid, it returns an error and changes nothing.
func (r *Registry) Add(c Client, logger *slog.Logger) error {
	if r.FindConfigured(c.ID) != nil {
		return fmt.Errorf("duplicate client_id %s", c.ID)
	}
	if err := namecheck.CheckConfigured(c.ID); err != nil {
		return fmt.Errorf("client %q: client_id %w", c.ID, err)
	}
	if err := c.Complete(r.GrantTypes); err != nil {
		return err
	}
	c.Keys, _ = c.NewKeys(logger, c.Transport) // Complete has validated the keys; NewKeys is called again to set the logger
	c.allowedScopes = &boundedcache.Cache[string, bool]{MaxEntries: maxCachedScopes}
	r.configured.Set(c.ID, &c)
	r.launcherCount += c.launcherCount()
	return nil
}

// UsableGrantTypes returns the grant types that at least one client can use, for the discovery document.
func (r *Registry) UsableGrantTypes() (usable GrantTypes) {
	for _, g := range r.GrantTypes {
		if g.AlwaysListed || r.ContainsFunc(g.isUsableBy) {
			usable = append(usable, g)
		}
	}
	return usable
}

// ContainsFunc reports whether is returns true for a configured client, or for the most permissive client of a source.
func (r *Registry) ContainsFunc(is func(*Client) bool) bool {
	for _, c := range r.AllConfigured() {
		if is(c) {
			return true
		}
	}
	return slices.ContainsFunc(r.Sources, func(source Source) bool { return is(source.MostPermissive()) })
}

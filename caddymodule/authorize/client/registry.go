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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/snapshotmap"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/subject"
)

// A Source finds clients that are not configured. A feature adds it to [Registry.Sources].
type Source interface {
	// Find returns the client with a client_id, or nil. It may wait for approval.
	Find(ctx context.Context, id string) (*Client, error)

	// IDs returns the client_ids of all clients.
	IDs(ctx context.Context) ([]string, error)

	// Any returns a client that is allowed what a client of this source can be allowed, for discovery documents.
	Any() *Client
}

// ErrNotRegistered is returned for a client_id that no source has.
var ErrNotRegistered = errors.New("no client with this client_id has registered itself")

// RegisteredClient is a client that registered itself, as the operator sees it.
type RegisteredClient struct {
	Client   Client    // as registered, within what the configuration allows
	IssuedAt time.Time // when it registered
	Waits    bool      // for the operator's approval
	Secret   bool      // it has one
}

// Registry finds clients.
//
// Use [Registry.Clone] to change it: the cost does not depend on the number of clients. The original must not be changed
// after that.
type Registry struct {
	configured *snapshotmap.Map[*Client] // by client_id
	launching  int                       // clients with LaunchContext

	GrantTypes GrantTypes // that clients may use
	Sources    []Source   // of clients that are not configured

	// Known is asked about a client that is not known, and says why there may be more, if so.
	// Default: there are no more.
	Known func(context.Context) error
}

// errNotApproved is the answer to a client that waits for approval.
var errNotApproved = &oauth2.Error{
	Code: "unauthorized_client", Description: "the operator of this server has not approved this app yet", Status: http.StatusForbidden,
}

// Find returns a configured or registered client by its client_id, or nil.
func (r *Registry) Find(ctx context.Context, id string) (*Client, error) {
	c, err := r.named(ctx, id)
	if err == nil && c != nil && c.Waits {
		return nil, errNotApproved
	}
	return c, err
}

// named is Find of a client that may wait for approval, as only who proves to be that client is told.
func (r *Registry) named(ctx context.Context, id string) (*Client, error) {
	if c := r.Configured(id); c != nil {
		return c, nil
	}
	for _, source := range r.Sources {
		if c, err := source.Find(ctx, id); c != nil || err != nil {
			return c, err
		}
	}
	if r.Known != nil {
		return nil, r.Known(ctx)
	}
	return nil, nil
}

// Note notes for the audit trail that a request names a client, which may wait for approval, and reports whether it exists.
func (r *Registry) Note(ctx context.Context, id string) bool {
	if id == "" {
		return false
	}
	c, err := r.named(ctx, id)
	if c == nil || err != nil {
		return false
	}
	audit.NoteClient(ctx, id)
	return true
}

// IDs returns the client_ids of all clients.
func (r *Registry) IDs(ctx context.Context) (ids []string, err error) {
	for _, source := range r.Sources {
		found, failed := source.IDs(ctx)
		ids, err = append(ids, found...), errors.Join(err, failed)
	}
	for id := range r.configured.All() {
		ids = append(ids, id)
	}
	return ids, err
}

// NewRegistry returns a registry without clients.
func NewRegistry(grants GrantTypes) *Registry {
	return &Registry{configured: new(snapshotmap.Map[*Client]), GrantTypes: grants}
}

// Clone returns a registry that can be changed.
func (r *Registry) Clone() *Registry {
	clone := *r
	clone.configured = r.configured.Clone()
	return &clone
}

// Configured returns the configured client with a client_id, or nil.
func (r *Registry) Configured(id string) *Client { return r.configured.Get(id) }

// AllConfigured iterates over the configured clients by client_id.
func (r *Registry) AllConfigured() iter.Seq2[string, *Client] { return r.configured.All() }

// LaunchesFromEHR reports whether a configured client may create launch contexts.
func (r *Registry) LaunchesFromEHR() bool { return r.launching > 0 }

// RemoveConfigured removes a configured client by client_id, if there is one.
func (r *Registry) RemoveConfigured(id string) {
	if c := r.Configured(id); c != nil {
		r.configured.Delete(id)
		r.launching -= c.launches()
	}
}

// launches is 1 if the client may create launch contexts, else 0.
func (c *Client) launches() int {
	if c.LaunchContext {
		return 1
	}
	return 0
}

// Add adds a configured client. It returns an error, and changes nothing, if the client is invalid.
func (r *Registry) Add(c Client, logger *slog.Logger) error {
	if r.Configured(c.ID) != nil {
		return fmt.Errorf("duplicate client %s", c.ID)
	}
	if err := subject.CheckConfigured(c.ID); err != nil {
		return fmt.Errorf("client %q: the id, which can be the sub of tokens, %w", c.ID, err)
	}
	if err := c.Complete(r.GrantTypes); err != nil {
		return err
	}
	c.Keys, _ = c.NewKeys(logger, c.Transport) // again, with a logger: Complete has checked them
	c.granted = &boundedcache.Cache[string, bool]{MaxEntries: maxGrantedScopes}
	r.configured.Set(c.ID, &c)
	r.launching += c.launches()
	return nil
}

// Offered are the grant types that some client has a use for, as discovery lists them.
func (r *Registry) Offered() (offered GrantTypes) {
	for _, g := range r.GrantTypes {
		if g.Always || r.Any(g.offeredTo) {
			offered = append(offered, g)
		}
	}
	return offered
}

// Any reports whether a client matches, or one of a source could.
func (r *Registry) Any(is func(*Client) bool) bool {
	for _, c := range r.AllConfigured() {
		if is(c) {
			return true
		}
	}
	return slices.ContainsFunc(r.Sources, func(source Source) bool { return is(source.Any()) })
}

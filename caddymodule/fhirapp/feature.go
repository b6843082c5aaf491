package fhirapp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Namespaces of features for the authorization server, an identity provider, and a client.
const (
	features         = "fhir.features"
	providerFeatures = "fhir.idp"
	clientFeatures   = "fhir.client"
)

// A Feature is a Caddy module in the namespace `fhir.features`, which extends the authorization server. Its subdirectives in
// the fhir block are registered with [option.Feature].
type Feature interface {
	// Configure changes the configuration of the authorization server. It is called once per configuration of Caddy, before
	// the server is created, and does no I/O.
	Configure(*App, *authorize.Config) error
}

// AlwaysOn is a [Feature] that is enabled without an option.
type AlwaysOn interface {
	Feature
	AlwaysOn() // marks the feature
}

// ProviderFeature is a Caddy module in the namespace `fhir.idp`, which extends one identity provider. Its subdirectives in
// the idp block are registered with [option.Feature].
type ProviderFeature interface {
	// ConfigureProvider is like [Feature.Configure], but for the identity provider with the given key.
	ConfigureProvider(app *App, c *authorize.Config, key string) error
}

// ClientFeature is a Caddy module in the namespace `fhir.client`, which extends one client of the configuration or the store.
// Its subdirectives in the client block are registered with [option.Feature]. It is only decoded from JSON, not provisioned.
type ClientFeature interface {
	// ConfigureClient changes a client before it is checked.
	ConfigureClient(*client.Client)
}

// configureClient applies the features of a client to it.
func configureClient(c *client.Client, raw caddy.ModuleMap) error {
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		info, err := caddy.GetModule(clientFeatures + "." + name)
		if err != nil {
			return err
		}
		feature, ok := info.New().(ClientFeature)
		if !ok {
			return fmt.Errorf("module %s.%s is not a client feature", clientFeatures, name)
		}
		if err := caddy.StrictUnmarshalJSON(raw[name], feature); err != nil {
			return fmt.Errorf("%s.%s: %w", clientFeatures, name, err)
		}
		feature.ConfigureClient(c)
	}
	return nil
}

// CheckedFeature is a feature with options that depend on the issuer or the FHIR base URL. They are checked when the Caddyfile
// is adapted.
type CheckedFeature interface {
	// CheckParsed checks the options. The error contains the line of the Caddyfile.
	CheckParsed(issuer, fhirBase string) error
}

// ClientSource is a feature that stores clients. An [EntryManager] lists, approves and removes them. Methods that change a
// client return [client.ErrNotRegistered] for a client of another source.
type ClientSource interface {
	ListClients(ctx context.Context) ([]client.RegisteredClient, error)     // all clients; the error reports unreadable ones
	Approve(ctx context.Context, id string) error                           // activates the client with its current metadata
	RotateSecret(ctx context.Context, id string) (secret string, err error) // replaces the secret
	Remove(ctx context.Context, id string) error                            // removes the client and revokes its tokens
}

// ServerUpdater is a [Feature] that adds clients and users to the running authorization server: it replaces the server
// with one created from its [authorize.Server.Draft]. Requests finish with the server that they started with, as on a reload. A
// configuration has at most one ServerUpdater.
type ServerUpdater interface {
	Feature

	// Attach receives the configured server before it serves requests, and the function that replaces it. It does no I/O.
	Attach(configured *authorize.Server, replace func(*authorize.Server))

	// Run updates the server from the start of the app until ctx is canceled.
	Run(ctx context.Context)

	// UpdateError returns why the latest update failed; nil if it succeeded. It does not block. The gateway is not ready while
	// Problem returns an error other than [store.ErrUnavailable], which the store reports itself.
	UpdateError() error

	// Hint returns the command with which operators add a client to the running server, for log messages.
	Hint() string
}

// An Entry is a client or user, regardless of where it was added. Secrets and hashes are left out.
type Entry struct {
	Name            string    `json:"name"`                    // client_id, or user name
	Origin          string    `json:"from"`                    // configuration, store or registration
	AddedAt         time.Time `json:"since,omitzero"`          // time when the entry was added
	PendingApproval bool      `json:"waits,omitempty"`         // whether the client awaits approval
	HasSecret       bool      `json:"has_secret,omitempty"`    // whether the client has a secret that can be rotated
	Problem         string    `json:"problem,omitempty"`       // why the entry is not active
	Secret          string    `json:"client_secret,omitempty"` // new secret, which is shown only once
	Config          any       `json:"config,omitempty"`        // in the format of the JSON configuration
}

// EntryManager is a [Feature] with which other features list clients and users and change those that are not in the configuration.
// Kinds are those of the admin API: clients, users. An error that an administrator can correct is a [caddy.APIError].
type EntryManager interface {
	Feature

	// List returns all entries of a kind, regardless of where they were added.
	List(ctx context.Context, kind string) ([]Entry, error)

	// Add adds a client or user given as JSON configuration. If secret is set, the client gets a secret.
	Add(ctx context.Context, kind string, config []byte, secret bool) (Entry, error)

	// Edit changes the configuration of an entry by the JSON merge patch (RFC 7396) that patch returns for it.
	Edit(ctx context.Context, kind, name string, patch func(config json.RawMessage) ([]byte, error)) (Entry, error)

	// Remove removes an entry, or a client of a [ClientSource], and revokes its grants and tokens.
	Remove(ctx context.Context, kind, name string) (Entry, error)

	// Approve approves a client of a [ClientSource].
	Approve(ctx context.Context, id string) (Entry, error)

	// RotateSecret replaces the secret of a client.
	RotateSecret(ctx context.Context, id string) (Entry, error)
}

// FeatureOf returns the feature of the authorization server with type F.
func FeatureOf[F any](a *App) (feature F, ok bool) {
	for _, f := range a.features {
		if feature, ok = f.(F); ok {
			break
		}
	}
	return feature, ok
}

// RetainedValue returns a value that survives reloads as long as the configurations keep their signing keys in the same place
// and have the same store. Each type and store has one value.
func RetainedValue[T any](a *App) *T {
	value, _ := a.state.retainedValues.LoadOrStore(retainedKey{reflect.TypeFor[T](), string(a.StoreRaw)}, new(T))
	return value.(*T)
}

type retainedKey struct {
	valueType reflect.Type
	store     string // configuration of the store
}

// ForEachStarted calls do with each started app: two during a reload, otherwise one. Metrics cover these apps.
func ForEachStarted(do func(*App)) {
	startedApps.Range(func(app, _ any) bool {
		do(app.(*App))
		return true
	})
}

// loadFeatures loads the configured features and applies each to the server's configuration.
func loadFeatures(a *App, c *authorize.Config) error {
	loaded, err := a.ctx.LoadModule(a, "FeaturesRaw")
	if err != nil {
		return err
	}
	byName, _ := loaded.(map[string]any)
	if byName == nil {
		byName = map[string]any{}
	}
	for _, info := range caddy.GetModules(features) {
		if feature, ok := info.New().(AlwaysOn); ok && byName[info.ID.Name()] == nil {
			byName[info.ID.Name()] = feature
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		feature, ok := byName[name].(Feature)
		if !ok {
			return fmt.Errorf("module %s.%s: %T is not a feature of the authorization server", features, name, byName[name])
		}
		if err := feature.Configure(a, c); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		a.features = append(a.features, feature)
		if updater, ok := feature.(ServerUpdater); ok {
			if a.updater != nil {
				return fmt.Errorf("feature %s: another feature already updates the authorization server", name)
			}
			a.updater = updater
		}
	}
	return loadProviderFeatures(a, c)
}

func loadProviderFeatures(a *App, c *authorize.Config) error {
	for i := range a.IdentityProviders {
		p := &a.IdentityProviders[i]
		loaded, err := a.ctx.LoadModule(p, "FeaturesRaw")
		if err != nil {
			return fmt.Errorf("idp %q: %w", p.Key, err)
		}
		byName, _ := loaded.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			feature, ok := byName[name].(ProviderFeature)
			if !ok {
				return fmt.Errorf("idp %q: module %s.%s: %T is not a feature of an identity provider", p.Key, providerFeatures, name, byName[name])
			}
			if err := feature.ConfigureProvider(a, c, p.Key); err != nil {
				return fmt.Errorf("idp %q: %w", p.Key, err)
			}
		}
	}
	return nil
}

// Storage returns Caddy's storage.
func (a *App) Storage() certmagic.Storage { return a.ctx.Storage() }

// SharedStore returns the durable store if it also contains the signing keys and registered clients, and nil if
// [App.Storage] contains them.
func (a *App) SharedStore() store.Store {
	if len(a.StoreKeys) == 0 {
		return nil
	}
	return a.stores.Durable
}

// mayBeGranted reports whether a configured client or a self-registered client could be granted a scope. Clients that a
// feature adds itself, such as that of the launch page, do not count.
func mayBeGranted(a *App, c *authorize.Config, is func(scope string) bool) bool {
	if slices.ContainsFunc(a.Clients, func(c Client) bool { return slices.ContainsFunc(c.Scopes, is) }) {
		return true
	}
	return slices.ContainsFunc(clientSources(c), func(s client.Source) bool { return slices.ContainsFunc(s.MostPermissive().Scopes, is) })
}

// clientSources returns the features that are client sources.
func clientSources(c *authorize.Config) (sources []client.Source) {
	for _, f := range c.Features {
		if source, ok := f.(client.Source); ok {
			sources = append(sources, source)
		}
	}
	return sources
}

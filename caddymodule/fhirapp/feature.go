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

// Module namespaces for features of the authorization server, of an identity provider, and of a client.
const (
	features         = "fhir.features"
	providerFeatures = "fhir.idp"
	clientFeatures   = "fhir.client"
)

// A Feature is a Caddy module in the namespace `fhir.features` that extends the authorization server. Its subdirectives in the
// fhir block are registered with [option.Feature].
type Feature interface {
	// Configure changes the configuration of the authorization server. It is called once per Caddy configuration, before the
	// server is created, and must not perform I/O.
	Configure(*App, *authorize.Config) error
}

// AlwaysOn is a [Feature] that is enabled without an option.
type AlwaysOn interface {
	Feature
	AlwaysOn() // marker method, never called
}

// ProviderFeature is a Caddy module in the namespace `fhir.idp` that extends one identity provider. Its subdirectives in the
// idp block are registered with [option.Feature].
type ProviderFeature interface {
	// ConfigureProvider is like [Feature.Configure], but for the identity provider with the given key.
	ConfigureProvider(app *App, c *authorize.Config, key string) error
}

// ClientFeature is a Caddy module in the namespace `fhir.client` that extends one client in the configuration or the store. Its
// subdirectives in the client block are registered with [option.Feature]. It is decoded from JSON but not provisioned.
type ClientFeature interface {
	// ConfigureClient changes a client before the client is checked.
	ConfigureClient(*client.Client)
}

// configureClient applies a client's features to the client.
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

// CheckedFeature is a feature with options that depend on the issuer or the FHIR base URL. The options are checked when the
// Caddyfile is adapted.
type CheckedFeature interface {
	// CheckParsed checks the options. The error contains the line of the Caddyfile.
	CheckParsed(issuer, fhirBase string) error
}

// ClientSource is a feature that stores clients. An [EntryManager] lists, approves and removes them. Methods that change a
// client return [client.ErrNotRegistered] if another source stores the client.
type ClientSource interface {
	ListClients(ctx context.Context) ([]client.RegisteredClient, error)     // all clients; the error reports clients that could not be read
	Approve(ctx context.Context, id string) error                           // activates the client with its current metadata
	RotateSecret(ctx context.Context, id string) (secret string, err error) // replaces the client's secret and returns the new one
	Remove(ctx context.Context, id string) error                            // removes the client and revokes its tokens
}

// ServerUpdater is a [Feature] that adds clients and users to the running authorization server. It replaces the server with one
// created from the current server's [authorize.Server.Draft]. As on a reload, requests finish with the server that they started
// with. A configuration has at most one ServerUpdater.
type ServerUpdater interface {
	Feature

	// Attach receives the configured server, before it serves requests, and a function that replaces it. It must not perform
	// I/O.
	Attach(configured *authorize.Server, replace func(*authorize.Server))

	// Run updates the server from the start of the app until ctx is canceled.
	Run(ctx context.Context)

	// UpdateError returns the error of the latest update, or nil if the update succeeded. It does not block. The gateway is not
	// ready while UpdateError returns an error other than [store.ErrUnavailable], which the store reports itself.
	UpdateError() error

	// Hint returns the command with which operators add a client to the running server. It is used in log messages.
	Hint() string
}

// An Entry is a client or user, regardless of its origin. It does not contain secrets or hashes.
type Entry struct {
	Name            string    `json:"name"`                    // client_id or user name
	Origin          string    `json:"from"`                    // configuration, store or registration
	AddedAt         time.Time `json:"since,omitzero"`          // time when the entry was added
	PendingApproval bool      `json:"waits,omitempty"`         // whether the client is waiting for approval
	HasSecret       bool      `json:"has_secret,omitempty"`    // whether the client has a secret that can be rotated
	Problem         string    `json:"problem,omitempty"`       // why the entry is not active
	Secret          string    `json:"client_secret,omitempty"` // new secret, returned only once
	Config          any       `json:"config,omitempty"`        // the entry in the format of the JSON configuration
}

// EntryManager is a [Feature] through which other features list clients and users and change those that are not in the
// configuration. Kinds are those of the admin API: clients and users. Errors that an administrator can correct are of type
// [caddy.APIError].
type EntryManager interface {
	Feature

	// List returns all entries of the given kind, regardless of their origin.
	List(ctx context.Context, kind string) ([]Entry, error)

	// Add adds a client or user from its JSON configuration. If secret is true, Add generates a client secret.
	Add(ctx context.Context, kind string, config []byte, secret bool) (Entry, error)

	// Edit applies a JSON merge patch (RFC 7396) to the configuration of an entry. The function patch receives the
	// configuration and returns the merge patch.
	Edit(ctx context.Context, kind, name string, patch func(config json.RawMessage) ([]byte, error)) (Entry, error)

	// Remove removes an entry, which may be a client of a [ClientSource], and revokes its grants and tokens.
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

// RetainedValue returns a value of type T that survives reloads as long as the location of the signing keys and the store stay
// the same. There is one value per type and store.
func RetainedValue[T any](a *App) *T {
	value, _ := a.state.retainedValues.LoadOrStore(retainedKey{reflect.TypeFor[T](), string(a.StoreRaw)}, new(T))
	return value.(*T)
}

type retainedKey struct {
	valueType reflect.Type
	store     string // the store's configuration
}

// ForEachStarted calls do for each started app: two during a reload, otherwise one. Metrics include these apps.
func ForEachStarted(do func(*App)) {
	startedApps.Range(func(app, _ any) bool {
		do(app.(*App))
		return true
	})
}

// loadFeatures loads the configured features and applies each one to the server's configuration.
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

// SharedStore returns the durable store if it also contains the signing keys and registered clients. It returns nil if
// [App.Storage] contains them.
func (a *App) SharedStore() store.Store {
	if len(a.StoreKeys) == 0 {
		return nil
	}
	return a.stores.Durable
}

// mayBeGranted reports whether a configured client or a self-registered client could be granted a scope for which is returns
// true. Clients added by features, such as the launch page's client, are ignored.
func mayBeGranted(a *App, c *authorize.Config, is func(scope string) bool) bool {
	if slices.ContainsFunc(a.Clients, func(c Client) bool { return slices.ContainsFunc(c.Scopes, is) }) {
		return true
	}
	return slices.ContainsFunc(clientSources(c), func(s client.Source) bool { return slices.ContainsFunc(s.MostPermissive().Scopes, is) })
}

// clientSources returns the client sources among the features.
func clientSources(c *authorize.Config) (sources []client.Source) {
	for _, f := range c.Features {
		if source, ok := f.(client.Source); ok {
			sources = append(sources, source)
		}
	}
	return sources
}

package roster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/features/roster/entry"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fhirapp"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() { caddy.RegisterModule(new(Roster)) }

// Roster manages the clients and users in the durable store, in addition to those of the configuration. It is always on.
type Roster struct {
	app     *fhirapp.App
	updater *entry.Updater

	hashQueue *fairqueue.Queue // limits concurrent hashing of new passwords, which takes memory
}

// CaddyModule returns the Caddy module information.
func (*Roster) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.roster", New: func() caddy.Module { return new(Roster) }}
}

// AlwaysOn implements [fhirapp.AlwaysOn].
func (*Roster) AlwaysOn() {}

// Configure implements [fhirapp.Feature].
func (r *Roster) Configure(app *fhirapp.App, c *authorize.Config) error {
	r.app, r.hashQueue = app, fairqueue.New(1)
	r.updater = &entry.Updater{
		Roster: entry.New(app.Stores().Durable, fhirapp.RetainedValue[entry.LoadedEntries](app)), Resolve: addToConfig, Logger: c.Logger,
	}
	c.CheckComplete, c.ChangePassword = r.updater.EnsureLoaded, r.changePassword
	return nil
}

// Attach implements [fhirapp.ServerUpdater].
func (r *Roster) Attach(configured *authorize.Server, replace func(*authorize.Server)) {
	r.updater.Attach(configured, replace)
}

// Run implements [fhirapp.ServerUpdater].
func (r *Roster) Run(ctx context.Context) { r.updater.Run(ctx) }

// UpdateError implements [fhirapp.ServerUpdater].
func (r *Roster) UpdateError() error { return r.updater.Roster.ReadError() }

// Hint implements [fhirapp.ServerUpdater].
func (*Roster) Hint() string { return "caddy fhir-client add" }

// List implements [fhirapp.EntryManager].
func (r *Roster) List(ctx context.Context, kind string) ([]fhirapp.Entry, error) {
	snapshot, err := r.updater.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	entries := r.configuredEntries(entry.Kind(kind))
	for name, e := range snapshot.All(entry.Kind(kind)) {
		entries = append(entries, r.newStoredEntry(entry.Kind(kind), name, e))
	}
	if entry.Kind(kind) != entry.Clients {
		return entries, nil
	}
	for _, source := range r.clientSources() {
		registered, listErr := source.ListClients(ctx)
		err = errors.Join(err, listErr)
		for _, c := range registered {
			entries = append(entries, fhirapp.Entry{
				Name: c.Client.ID, Origin: "registration", AddedAt: c.IssuedAt, PendingApproval: c.PendingApproval, HasSecret: c.HasSecret,
				Config: client.Client{Name: c.Client.Name, RedirectURIs: c.Client.RedirectURIs, Scopes: c.Client.Scopes},
			})
		}
	}
	return entries, apiError(err)
}

// clientSources returns the features through which clients can register.
func (r *Roster) clientSources() (sources []fhirapp.ClientSource) {
	for _, feature := range r.app.Features() {
		if source, ok := feature.(fhirapp.ClientSource); ok {
			sources = append(sources, source)
		}
	}
	return sources
}

// tryClientSources calls do for each client source until one knows the client.
func (r *Roster) tryClientSources(do func(fhirapp.ClientSource) error) error {
	for _, source := range r.clientSources() {
		if err := do(source); !errors.Is(err, client.ErrNotRegistered) {
			return err
		}
	}
	return client.ErrNotRegistered
}

// configuredEntries returns the entries of the configuration.
func (r *Roster) configuredEntries(kind entry.Kind) []fhirapp.Entry {
	entries := []fhirapp.Entry{}
	if kind == entry.Clients {
		for _, c := range r.app.Clients {
			c.Secret = ""
			entries = append(entries, fhirapp.Entry{Name: c.ID, Origin: "configuration", Config: c})
		}
		return entries
	}
	for _, u := range r.app.Users {
		u.PasswordHash, u.TOTPSecret = "", ""
		entries = append(entries, fhirapp.Entry{Name: u.Name, Origin: "configuration", Config: u})
	}
	return entries
}

// newStoredEntry returns an entry of the store, without its password hash.
func (r *Roster) newStoredEntry(kind entry.Kind, name string, e entry.Entry) fhirapp.Entry {
	view := fhirapp.Entry{Name: name, Origin: "store", AddedAt: e.Since, HasSecret: e.SecretSHA256 != nil}
	config := map[string]any{}
	if err := json.Unmarshal(e.Config, &config); err != nil {
		view.Problem = err.Error()
	}
	maps.DeleteFunc(config, func(member string, _ any) bool { return strings.EqualFold(member, "password_hash") }) // decoding JSON ignores the case of names
	if view.Config = config; view.Problem == "" {
		if err := r.updater.Problem(kind, name); err != nil {
			view.Problem = err.Error()
		}
	}
	return view
}

// Add implements [fhirapp.EntryManager].
func (r *Roster) Add(ctx context.Context, kind string, config []byte, secret bool) (fhirapp.Entry, error) {
	name, err := entryName(entry.Kind(kind), config)
	added := fhirapp.Entry{Name: name, Origin: "store", AddedAt: time.Now().UTC().Truncate(time.Second)}
	if err != nil {
		return added, badRequest(err)
	}
	e := entry.Entry{Config: config, Since: added.AddedAt}
	if entry.Kind(kind) == entry.Clients && secret {
		added.Secret, e.SecretSHA256 = newSecret()
	}
	return added, apiError(r.changeEntry(ctx, kind, name, entry.Add(e)))
}

// Edit implements [fhirapp.EntryManager].
func (r *Roster) Edit(ctx context.Context, kind, name string, patch func(config json.RawMessage) ([]byte, error)) (fhirapp.Entry, error) {
	err := r.changeEntry(ctx, kind, name, entry.Replace(func(e entry.Entry) (entry.Entry, error) {
		patch, err := patch(e.Config)
		if err != nil {
			return e, err
		}
		if e.Config, err = jsonpatch.MergePatch(e.Config, patch); err != nil {
			return e, badRequest(err)
		}
		if patched, err := entryName(entry.Kind(kind), e.Config); err != nil || patched != name {
			return e, badRequest(cmp.Or(err, errors.New("the name cannot be changed: add a new entry instead")))
		}
		return e, nil
	}))
	return fhirapp.Entry{Name: name, Origin: "store"}, apiError(err)
}

// errPasswordChanged reports that the entered password was replaced or removed after its verification. It counts as wrong.
var errPasswordChanged = fmt.Errorf("%w: the password was changed at the same time", people.ErrWrongPassword)

// changePassword replaces the password of a user in the store, unless an administrator or another gateway has changed it, or
// removed the user, since the user's sign-in.
func (r *Roster) changePassword(ctx context.Context, user *people.User, password string) error {
	leave, err := r.hashQueue.Acquire(ctx, user.ID)
	if err != nil {
		return err
	}
	hash := fhirapp.HashPassword(password)
	leave()
	err = r.updater.Change(ctx, entry.Users, user.ID, entry.Replace(func(e entry.Entry) (entry.Entry, error) {
		var u fhirapp.User
		err := unmarshalEntry(e.Config, &u)
		if err == nil && (u.PasswordHash != user.PasswordHash || e.Generation != user.Generation) {
			err = errPasswordChanged
		}
		if u.PasswordHash = hash; err == nil {
			e.Config, err = json.Marshal(u)
		}
		return e, err
	}))
	if errors.Is(err, entry.ErrNotFound) {
		err = errPasswordChanged
	}
	return err
}

// Remove implements [fhirapp.EntryManager].
func (r *Roster) Remove(ctx context.Context, kind, name string) (fhirapp.Entry, error) {
	removed := fhirapp.Entry{Name: name, Origin: "store"}
	if err := r.revokeGrants(ctx, entry.Kind(kind), name); err != nil {
		return removed, apiError(err)
	}
	err := r.changeEntry(ctx, kind, name, entry.Remove())
	if errors.Is(err, entry.ErrNotFound) && entry.Kind(kind) == entry.Clients {
		removed.Origin = "registration"
		if err = r.revokeClient(ctx, name); err == nil {
			err = r.tryClientSources(func(s fhirapp.ClientSource) error { return s.Remove(ctx, name) })
		}
	}
	return removed, apiError(err)
}

// Approve implements [fhirapp.EntryManager].
func (r *Roster) Approve(ctx context.Context, id string) (fhirapp.Entry, error) {
	err := r.tryClientSources(func(s fhirapp.ClientSource) error { return s.Approve(ctx, id) })
	return fhirapp.Entry{Name: id, Origin: "registration"}, apiError(err)
}

// RotateSecret implements [fhirapp.EntryManager].
func (r *Roster) RotateSecret(ctx context.Context, id string) (fhirapp.Entry, error) {
	rotated := fhirapp.Entry{Name: id, Origin: "store"}
	var digest []byte
	rotated.Secret, digest = newSecret()
	err := r.changeEntry(ctx, string(entry.Clients), id, entry.Replace(func(e entry.Entry) (entry.Entry, error) {
		if e.SecretSHA256 == nil {
			return e, badRequest(errors.New("the client has no secret: it is public or authenticates with keys"))
		}
		e.SecretSHA256 = digest
		return e, nil
	}))
	if errors.Is(err, entry.ErrNotFound) {
		rotated.Origin = "registration"
		err = r.tryClientSources(func(s fhirapp.ClientSource) (err error) {
			rotated.Secret, err = s.RotateSecret(ctx, id)
			return err
		})
	}
	return rotated, apiError(err)
}

// revokeGrants revokes the grants of a client or user in the store and removes a user's second factors, so that a later client
// or user with the same name does not inherit them.
func (r *Roster) revokeGrants(ctx context.Context, kind entry.Kind, name string) error {
	snapshot, err := r.updater.Snapshot(ctx)
	if err != nil {
		return err
	}
	if snapshot.Get(kind, name) == nil || r.isConfigured(kind, name) {
		return nil // a client or user that is now in the configuration keeps its grants
	}
	if kind == entry.Users {
		return r.app.Server().RevokeUser(ctx, name)
	}
	return r.revokeClient(ctx, name)
}

// revokeClient revokes the grants of a client. An inactive client has none.
func (r *Roster) revokeClient(ctx context.Context, id string) error {
	_, err := r.app.Server().RevokeGrants(ctx, "", id)
	if errors.Is(err, token.ErrUnknownPrincipal) {
		return nil
	}
	return err
}

func (r *Roster) isConfigured(kind entry.Kind, name string) bool {
	return slices.ContainsFunc(r.configuredEntries(kind), func(e fhirapp.Entry) bool { return e.Name == name })
}

var errConfigured = errors.New("is in the Caddyfile: change it there")

// changeEntry changes an entry of the store. The error for an entry of the configuration is errConfigured, so that the caller
// does not look for a self-registered client, and does not revoke grants.
func (r *Roster) changeEntry(ctx context.Context, kind, name string, alter entry.Alteration) error {
	err := r.updater.Change(ctx, entry.Kind(kind), name, alter)
	if errors.Is(err, entry.ErrNotFound) && r.isConfigured(entry.Kind(kind), name) {
		err = fmt.Errorf("%q %w", name, errConfigured)
	}
	return err
}

// apiError adds an HTTP status to errors that the caller of the admin API can correct.
func apiError(err error) error {
	for cause, status := range map[error]int{
		entry.ErrNotFound: http.StatusNotFound, errConfigured: http.StatusNotFound, client.ErrNotRegistered: http.StatusNotFound,
		entry.ErrExists: http.StatusConflict, entry.ErrReadable: http.StatusConflict, entry.ErrInvalid: http.StatusBadRequest,
		entry.ErrFull: http.StatusInsufficientStorage, store.ErrFull: http.StatusInsufficientStorage,
	} {
		if errors.Is(err, cause) {
			return caddy.APIError{HTTPStatus: status, Err: err}
		}
	}
	return err
}

func badRequest(err error) error {
	return caddy.APIError{HTTPStatus: http.StatusBadRequest, Err: err}
}

var (
	_ fhirapp.AlwaysOn      = (*Roster)(nil)
	_ fhirapp.ServerUpdater = (*Roster)(nil)
	_ fhirapp.EntryManager  = (*Roster)(nil)
)

// addToConfig adds a client or user of the store to a configuration. It does not replace placeholders, because administrators
// who may add users may not be allowed to read files on this machine.
func addToConfig(to *authorize.Config, kind entry.Kind, e entry.Entry) error {
	switch kind {
	case entry.Clients:
		client, err := storedClient(e)
		to.Clients = append(to.Clients, client)
		return err
	case entry.Users:
		user, err := storedUser(e)
		to.Users = append(to.Users, user)
		return err
	}
	return fmt.Errorf("unknown entry kind %q", kind)
}

func storedClient(e entry.Entry) (client.Client, error) {
	var c fhirapp.Client
	if err := unmarshalEntry(e.Config, &c); err != nil {
		return client.Client{}, err
	}
	switch {
	case c.Secret != "":
		return client.Client{}, errors.New("secret: the server generates secrets of stored clients: use --secret or ?secret=new")
	case c.TLS != option.TLS{}:
		return client.Client{}, errors.New("ca, client_certificate, client_key: only clients in the Caddyfile can use local files")
	}
	stored, err := c.Literal()
	if err != nil {
		return client.Client{}, err
	}
	stored.SecretSHA256, stored.Generation = e.SecretSHA256, e.Generation
	return stored, nil
}

func storedUser(e entry.Entry) (people.User, error) {
	var u fhirapp.User
	if err := unmarshalEntry(e.Config, &u); err != nil {
		return people.User{}, err
	}
	if u.TOTPSecret != "" {
		return people.User{}, errors.New("totp_secret: stored users enroll their second factors themselves")
	}
	if err := fhirapp.CheckPasswordHash(u.PasswordHash); err != nil {
		return people.User{}, err
	}
	user := u.WithSecrets(u.PasswordHash, "")
	user.Generation = e.Generation
	return user, nil
}

// unmarshalEntry decodes a configuration. Unknown members are an error, so that misspelled options are not ignored.
func unmarshalEntry(config json.RawMessage, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

// entryName returns the name of an entry from its configuration.
func entryName(kind entry.Kind, config []byte) (string, error) {
	var identity struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(config, &identity); err != nil {
		return "", errors.New("the entry must be a JSON object whose id or name is a string")
	}
	if kind == entry.Clients {
		identity.Name = identity.ID
	}
	if identity.Name == "" {
		return "", errors.New("the id of the client or the name of the user is missing")
	}
	return identity.Name, nil
}

// newSecret returns a new client secret and its digest.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

// collector is a Prometheus collector of the number of clients and users in the store.
type collector struct{}

var (
	entriesMetric = prometheus.NewDesc("caddy_fhir_roster_entries", "Number of clients and users in the store, as last read by this gateway.", []string{"kind"}, nil)
	limitMetric   = prometheus.NewDesc("caddy_fhir_roster_max_entries", "Maximum number of clients or users in the store.", []string{"kind"}, nil)
	_             = metrics.Add(collector{})
)

// Describe implements [prometheus.Collector].
func (collector) Describe(to chan<- *prometheus.Desc) {
	to <- entriesMetric
	to <- limitMetric
}

// Collect implements [prometheus.Collector].
func (collector) Collect(to chan<- prometheus.Metric) {
	for _, kind := range []entry.Kind{entry.Clients, entry.Users} {
		entries := 0
		fhirapp.ForEachStarted(func(app *fhirapp.App) {
			if r, ok := fhirapp.FeatureOf[*Roster](app); ok {
				entries = max(entries, r.updater.Len(kind))
			}
		})
		to <- prometheus.MustNewConstMetric(entriesMetric, prometheus.GaugeValue, float64(entries), string(kind))
		to <- prometheus.MustNewConstMetric(limitMetric, prometheus.GaugeValue, entry.MaxEntries, string(kind))
	}
}

var _ prometheus.Collector = collector{}

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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/option"
)

func init() { caddy.RegisterModule(new(Roster)) }

// Roster manages the clients and users in the durable store, in addition to those of the configuration. It needs no option.
type Roster struct {
	app     *fhirapp.App
	updater *entry.Updater
}

// CaddyModule returns the Caddy module information.
func (*Roster) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "fhir.features.roster", New: func() caddy.Module { return new(Roster) }}
}

// AlwaysOn implements [fhirapp.AlwaysOn].
func (*Roster) AlwaysOn() {}

// Configure implements [fhirapp.Feature].
func (r *Roster) Configure(app *fhirapp.App, c *authorize.Config) error {
	r.app = app
	r.updater = &entry.Updater{
		Roster: entry.New(app.Stores().Durable, fhirapp.Retained[entry.LoadedEntries](app)), Resolve: resolve, Logger: c.Logger,
	}
	c.CheckComplete = r.updater.EnsureLoaded
	return nil
}

// Attach implements [fhirapp.ServerUpdater].
func (r *Roster) Attach(configured *authorize.Server, replace func(*authorize.Server)) {
	r.updater.Attach(configured, replace)
}

// Run implements [fhirapp.ServerUpdater].
func (r *Roster) Run(ctx context.Context) { r.updater.Run(ctx) }

// Problem implements [fhirapp.ServerUpdater].
func (r *Roster) Problem() error { return r.updater.Roster.ReadError() }

// Hint implements [fhirapp.ServerUpdater].
func (*Roster) Hint() string { return "caddy fhir-client add" }

// List implements [fhirapp.EntryManager].
func (r *Roster) List(ctx context.Context, kind string) ([]fhirapp.Entry, error) {
	record, err := r.updater.Record(ctx)
	if err != nil {
		return nil, err
	}
	entries := r.configured(entry.Kind(kind))
	for name, e := range record.Of(entry.Kind(kind)) {
		entries = append(entries, r.stored(entry.Kind(kind), name, e))
	}
	if entry.Kind(kind) != entry.Clients {
		return entries, nil
	}
	for _, source := range r.sources() {
		registered, failed := source.Registered(ctx)
		err = errors.Join(err, failed)
		for _, c := range registered {
			entries = append(entries, fhirapp.Entry{
				Name: c.Client.ID, From: "registration", Since: c.IssuedAt, PendingApproval: c.PendingApproval, Has: c.Secret,
				Config: client.Client{Name: c.Client.Name, RedirectURIs: c.Client.RedirectURIs, Scopes: c.Client.Scopes},
			})
		}
	}
	return entries, apiError(err)
}

// sources returns the features that store clients.
func (r *Roster) sources() (sources []fhirapp.ClientSource) {
	for _, feature := range r.app.Features() {
		if source, ok := feature.(fhirapp.ClientSource); ok {
			sources = append(sources, source)
		}
	}
	return sources
}

// ofSource calls do for each client source until one has the client.
func (r *Roster) ofSource(do func(fhirapp.ClientSource) error) error {
	for _, source := range r.sources() {
		if err := do(source); !errors.Is(err, client.ErrNotRegistered) {
			return err
		}
	}
	return client.ErrNotRegistered
}

// configured returns the entries of the configuration.
func (r *Roster) configured(kind entry.Kind) []fhirapp.Entry {
	entries := []fhirapp.Entry{}
	if kind == entry.Clients {
		for _, c := range r.app.Clients {
			c.Secret = ""
			entries = append(entries, fhirapp.Entry{Name: c.ID, From: "configuration", Config: c})
		}
		return entries
	}
	for _, u := range r.app.Users {
		u.PasswordHash, u.TOTPSecret = "", ""
		entries = append(entries, fhirapp.Entry{Name: u.Name, From: "configuration", Config: u})
	}
	return entries
}

// stored returns an entry of the store without its hash.
func (r *Roster) stored(kind entry.Kind, name string, e entry.Entry) fhirapp.Entry {
	shown := fhirapp.Entry{Name: name, From: "store", Since: e.Since, Has: e.SecretSHA256 != nil}
	config := map[string]any{}
	if err := json.Unmarshal(e.Config, &config); err != nil {
		shown.Problem = err.Error()
	}
	maps.DeleteFunc(config, func(member string, _ any) bool { return strings.EqualFold(member, "password_hash") }) // JSON names are decoded case-insensitively
	if shown.Config = config; shown.Problem == "" {
		if err := r.updater.Problem(kind, name); err != nil {
			shown.Problem = err.Error()
		}
	}
	return shown
}

// Add implements [fhirapp.EntryManager].
func (r *Roster) Add(ctx context.Context, kind string, config []byte, secret bool) (fhirapp.Entry, error) {
	name, err := nameOf(entry.Kind(kind), config)
	added := fhirapp.Entry{Name: name, From: "store", Since: time.Now().UTC().Truncate(time.Second)}
	if err != nil {
		return added, badRequest(err)
	}
	e := entry.Entry{Config: config, Since: added.Since}
	if entry.Kind(kind) == entry.Clients && secret {
		added.Secret, e.SecretSHA256 = newSecret()
	}
	return added, apiError(r.change(ctx, kind, name, entry.Add(e)))
}

// Edit implements [fhirapp.EntryManager].
func (r *Roster) Edit(ctx context.Context, kind, name string, patch func(config json.RawMessage) ([]byte, error)) (fhirapp.Entry, error) {
	err := r.change(ctx, kind, name, entry.Replace(func(e entry.Entry) (entry.Entry, error) {
		patch, err := patch(e.Config)
		if err != nil {
			return e, err
		}
		if e.Config, err = jsonpatch.MergePatch(e.Config, patch); err != nil {
			return e, badRequest(err)
		}
		if patched, err := nameOf(entry.Kind(kind), e.Config); err != nil || patched != name {
			return e, badRequest(cmp.Or(err, errors.New("a name stays as it is: add another entry")))
		}
		return e, nil
	}))
	return fhirapp.Entry{Name: name, From: "store"}, apiError(err)
}

// Remove implements [fhirapp.EntryManager].
func (r *Roster) Remove(ctx context.Context, kind, name string) (fhirapp.Entry, error) {
	removed := fhirapp.Entry{Name: name, From: "store"}
	if err := r.endGrants(ctx, entry.Kind(kind), name); err != nil {
		return removed, apiError(err)
	}
	err := r.change(ctx, kind, name, entry.Remove())
	if errors.Is(err, entry.ErrUnknown) && entry.Kind(kind) == entry.Clients {
		removed.From = "registration"
		if err = r.revokeClient(ctx, name); err == nil {
			err = r.ofSource(func(s fhirapp.ClientSource) error { return s.Remove(ctx, name) })
		}
	}
	return removed, apiError(err)
}

// Approve implements [fhirapp.EntryManager].
func (r *Roster) Approve(ctx context.Context, id string) (fhirapp.Entry, error) {
	err := r.ofSource(func(s fhirapp.ClientSource) error { return s.Approve(ctx, id) })
	return fhirapp.Entry{Name: id, From: "registration"}, apiError(err)
}

// RotateSecret implements [fhirapp.EntryManager].
func (r *Roster) RotateSecret(ctx context.Context, id string) (fhirapp.Entry, error) {
	rotated := fhirapp.Entry{Name: id, From: "store"}
	var digest []byte
	rotated.Secret, digest = newSecret()
	err := r.change(ctx, string(entry.Clients), id, entry.Replace(func(e entry.Entry) (entry.Entry, error) {
		if e.SecretSHA256 == nil {
			return e, badRequest(errors.New("the client has no secret: it authenticates by keys, or not at all"))
		}
		e.SecretSHA256 = digest
		return e, nil
	}))
	if errors.Is(err, entry.ErrUnknown) {
		rotated.From = "registration"
		err = r.ofSource(func(s fhirapp.ClientSource) (err error) {
			rotated.Secret, err = s.RotateSecret(ctx, id)
			return err
		})
	}
	return rotated, apiError(err)
}

// endGrants revokes the grants of a client or user in the store, and a user's second factors, because a later owner of
// the name must not inherit them.
func (r *Roster) endGrants(ctx context.Context, kind entry.Kind, name string) error {
	record, err := r.updater.Record(ctx)
	if err != nil {
		return err
	}
	if record.Get(kind, name) == nil || slices.ContainsFunc(r.configured(kind), func(e fhirapp.Entry) bool { return e.Name == name }) {
		return nil // a user or client later added to the configuration keeps its grants
	}
	if kind == entry.Users {
		return r.app.Server().EndUser(ctx, name)
	}
	return r.revokeClient(ctx, name)
}

// revokeClient revokes the grants of a client. An inactive client has no grants.
func (r *Roster) revokeClient(ctx context.Context, id string) error {
	_, err := r.app.Server().RevokeGrants(ctx, "", id)
	if errors.Is(err, token.ErrUnknownPrincipal) {
		return nil
	}
	return err
}

func (r *Roster) change(ctx context.Context, kind, name string, alter entry.Alteration) error {
	return r.updater.Change(ctx, entry.Kind(kind), name, alter)
}

// apiError adds the HTTP status to a refusal.
func apiError(err error) error {
	for cause, status := range map[error]int{
		entry.ErrUnknown: http.StatusNotFound, client.ErrNotRegistered: http.StatusNotFound,
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

// resolve adds a client or user of the store. Placeholders are not replaced, because administrators who may add users
// need not be able to read this machine's files.
func resolve(to *authorize.Config, kind entry.Kind, e entry.Entry) error {
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
	return fmt.Errorf("entries of kind %q are not known", kind)
}

func storedClient(e entry.Entry) (client.Client, error) {
	var c fhirapp.Client
	if err := unmarshalEntry(e.Config, &c); err != nil {
		return client.Client{}, err
	}
	switch {
	case c.Secret != "":
		return client.Client{}, errors.New("secret: the server makes the secrets of clients in the store; ask for one")
	case c.TLS != option.TLS{}:
		return client.Client{}, errors.New("ca, client_certificate, client_key: files of this machine are for clients in the Caddyfile")
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
		return people.User{}, errors.New("totp_secret: people in the store set up their second factors themselves")
	}
	if err := fhirapp.CheckPasswordHash(u.PasswordHash); err != nil {
		return people.User{}, err
	}
	user := u.WithSecrets(u.PasswordHash, "")
	user.Generation = e.Generation
	return user, nil
}

// unmarshalEntry rejects unknown members, because a misspelled option must not be ignored silently.
func unmarshalEntry(config json.RawMessage, to any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	return decoder.Decode(to)
}

// nameOf returns the name of an entry from its configuration.
func nameOf(kind entry.Kind, config []byte) (string, error) {
	var named struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	if err := json.Unmarshal(config, &named); err != nil {
		return "", errors.New("it must be an object of JSON, whose id or name is a string")
	}
	if kind == entry.Clients {
		named.Name = named.ID
	}
	if named.Name == "" {
		return "", errors.New("a client needs an id, and a person a name")
	}
	return named.Name, nil
}

// newSecret returns a new secret for a client, with its digest.
func newSecret() (secret string, digest []byte) {
	secret = oauth2.RandomToken()
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

// collector reports the number of clients and users in the store.
type collector struct{}

var (
	entriesMetric = prometheus.NewDesc("caddy_fhir_roster_entries", "Clients and users in the store, as this gateway last read them.", []string{"kind"}, nil)
	limitMetric   = prometheus.NewDesc("caddy_fhir_roster_max_entries", "Clients or users at which the store refuses more of them.", []string{"kind"}, nil)
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
		fhirapp.EachStarted(func(app *fhirapp.App) {
			if r, ok := fhirapp.FeatureOf[*Roster](app); ok {
				entries = max(entries, r.updater.Len(kind))
			}
		})
		to <- prometheus.MustNewConstMetric(entriesMetric, prometheus.GaugeValue, float64(entries), string(kind))
		to <- prometheus.MustNewConstMetric(limitMetric, prometheus.GaugeValue, entry.MaxEntries, string(kind))
	}
}

var _ prometheus.Collector = collector{}

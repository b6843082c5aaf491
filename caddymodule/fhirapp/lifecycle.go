package fhirapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sealedkeys"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirbase"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fhirerror"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/metrics"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/placement"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/requester"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/sharedkey"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/modules/stores"
)

// Provision resolves placeholders and builds the authorization server. It neither reads nor writes storage, because `caddy
// validate` must not change anything.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger, a.events = ctx, fhirbase.NewLogger(ctx, "fhir"), audit.NewLog(fhirbase.NewLogger(ctx, fhirbase.AuditLogger))
	a.closeHealth = func() error { return nil }
	if err := a.check(); err != nil {
		return err
	}
	place := keyPlace(a)
	if err := a.provisionStores(ctx); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if err := a.loadKeys(place); err != nil {
		return err
	}
	config, err := a.serverConfig()
	if err != nil {
		return err
	}
	config.Checks = Retained[revalidation.Checks](a)
	server, err := authorize.New(config)
	if err != nil {
		return err
	}
	a.server = new(liveServer)
	if a.server.replace(server); a.updater != nil {
		a.updater.Attach(server, a.server.replace)
	}
	if err := a.listenForExit(ctx); err != nil {
		return err
	}
	warnWithoutClients(a.logger, a.updater, &config)
	warnOfClients(a.logger, a.Issuer, config.Clients)
	warnOfPeople(a.logger, a, &config)
	_, err = placement.Checks(ctx)
	return err
}

// check rejects JSON configurations that the Caddyfile parser would reject too.
func (a *App) check() error {
	if a.FHIRBase == "" {
		a.FHIRBase = fhirbase.DefaultBase
	}
	if err := fhirbase.CheckBase(a.FHIRBase); err != nil {
		return err
	}
	if a.Health != "" {
		return checkHealthAddress(a.Health)
	}
	return nil
}

func (a *App) provisionStores(ctx caddy.Context) (err error) {
	if a.stores, err = stores.Load(ctx, stores.Config{Issuer: a.Issuer, StoreRaw: a.StoreRaw}); err != nil {
		return err
	}
	if err := a.stores.CheckLag(time.Duration(a.RevocationMaxLag)); err != nil {
		return err
	}
	a.stores.Warn(a.logger, ctx.Storage(), len(a.StoreKeys) > 0)
	return nil
}

// Start opens the health port and the stores. It prepares the signing keys in the background, so that the first sign-in does
// not wait for them, and watches for keys of other gateways.
func (a *App) Start() (err error) {
	processStart()
	if a.Health != "" {
		if _, a.closeHealth, err = useHealthPort(a.Health, healthHandler(caddy.ActiveContext)); err != nil {
			return err
		}
	}
	if err := a.startStores(); err != nil {
		return errors.Join(err, a.closeHealth())
	}
	ctx, cancel := context.WithCancel(a.ctx)
	var running sync.WaitGroup
	running.Go(func() { a.server.run(ctx) })
	if a.updater != nil {
		running.Go(func() { a.updater.Run(ctx) })
	}
	a.ending = func() { cancel(); running.Wait() }
	go func() {
		a.prepareKeys()
		a.keys.Watch(a.ctx)
	}()
	return nil
}

// liveServer is the current authorization server with its background work.
type liveServer struct {
	inForce atomic.Pointer[authorize.Server]

	mu      sync.Mutex         // held while the server is replaced
	ctx     context.Context    // of the background work; nil before the app starts
	end     context.CancelFunc // stops the background work of the current server
	running sync.WaitGroup
}

// replace makes s the current server and replaces the background work of its predecessor.
func (l *liveServer) replace(s *authorize.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inForce.Store(s)
	l.begin()
}

// run does the background work until ctx is canceled.
func (l *liveServer) run(ctx context.Context) {
	l.mu.Lock()
	l.ctx = ctx
	l.begin()
	l.mu.Unlock()
	<-ctx.Done()
	l.running.Wait()
}

// begin stops the background work of the previous server and starts that of the current server. It requires the lock.
func (l *liveServer) begin() {
	if l.ctx == nil || l.ctx.Err() != nil {
		return
	}
	if l.end != nil {
		l.end()
	}
	ctx, end := context.WithCancel(l.ctx)
	l.end = end
	server := l.inForce.Load()
	l.running.Go(func() { server.Run(ctx) })
}

// prepareKeys loads the signing keys, or creates them.
func (a *App) prepareKeys() {
	switch err := a.keys.Refresh(a.ctx); {
	case err == nil:
		a.logger.Info("ready", "open", a.Issuer+cmp.Or(a.startPage, endpoint.Account))
	case errors.Is(err, context.Canceled), errors.Is(err, store.ErrUnavailable): // the store logs its own outages
	default:
		a.logger.Error("signing keys are not ready, trying again on first need", "error", err)
	}
}

func (a *App) startStores() error {
	if err := a.stores.Start(a.ctx, a.logger, a.Issuer, time.Duration(a.RevocationMaxLag)); err != nil {
		return err
	}
	a.stores.RecordDataLoss(func() bool { // if keys exist, tokens were issued, so the file of the store must have existed
		return len(a.StoreKeys) == 0 && a.ctx.Storage().Exists(a.ctx, KeysName(a.Issuer))
	})
	appsInUse.Store(a, nil)
	return nil
}

// Stop records the number of dropped audit events, stops the server's background work, and closes the health port. When the
// process exits, the latter two are deferred: Caddy stops its apps in any order, so its servers may accept requests for
// their shutdown_delay, while the health port shows load balancers that this gateway is stopping.
func (a *App) Stop() error {
	a.events.Flush()
	if caddy.Exiting() {
		caddy.OnExit(func(context.Context) { _ = end(a) })
		return nil
	}
	return end(a)
}

func end(a *App) error {
	if a.ending != nil {
		a.ending()
	}
	a.events.Flush()
	return a.closeHealth()
}

// listenForExit notifies the stores that the process exits. Stop would be too late: Caddy sometimes stops its servers first,
// and they use their whole grace period.
func (a *App) listenForExit(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return err
	}
	return events.(*caddyevents.App).On("stopping", exitHandler{a.stores})
}

type exitHandler struct{ stores *stores.Set }

// Handle implements caddyevents.Handler. It ignores reloads, which stop the previous configuration too.
func (h exitHandler) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() {
		h.stores.Stopping()
	}
	return nil
}

// Cleanup releases the keys if Provision acquired them.
func (a *App) Cleanup() error {
	appsInUse.Delete(a)
	if a.pooled == "" {
		return nil
	}
	_, err := statesInUse.Delete(a.pooled)
	return err
}

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

func (a *App) serverConfig() (_ authorize.Config, err error) {
	c := a.settings()
	c.Passwords, c.Keys, c.Store, c.Durable = Passwords{}, a.keys, a.stores.Store, a.stores.Durable
	if c.Branding, err = a.Branding.resolved(); err != nil {
		return c, err
	}
	if err := a.resolve(&c); err != nil {
		return c, err
	}
	return c, loadFeatures(a, &c)
}

// resolve replaces the placeholders of secrets in copies, because the configuration that Caddy shows and saves must keep the placeholders.
func (a *App) resolve(c *authorize.Config) error {
	for _, u := range a.Users {
		user, err := u.resolved(a.logger)
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
		c.Users = append(c.Users, user)
	}
	for _, configured := range a.Clients {
		client, err := configured.resolved()
		if err != nil {
			return fmt.Errorf("client %q: %w", configured.ID, err)
		}
		c.Clients = append(c.Clients, client)
	}
	for _, p := range a.IdentityProviders {
		provider, err := p.resolved()
		if err != nil {
			return fmt.Errorf("idp %q: %w", p.Key, err)
		}
		c.IdentityProviders = append(c.IdentityProviders, provider)
	}
	return nil
}

// settings returns the server's configuration without secrets.
func (a *App) settings() authorize.Config {
	return authorize.Config{
		Issuer: a.Issuer, FHIRBasePath: a.FHIRBase, ScopeLimits: a.ScopeLimits,
		AccessTokenLifetime: time.Duration(a.AccessTokenLifetime),
		SessionLifetime:     time.Duration(a.SessionLifetime),
		SessionIdle:         time.Duration(a.SessionIdle),

		RefreshTokenLifetime:     time.Duration(a.RefreshTokenLifetime),
		RefreshTokenIdleLifetime: time.Duration(a.RefreshTokenIdleLifetime),
		RefreshTokenGrace:        time.Duration(a.RefreshTokenGrace),
		Outages:                  func() []store.Outage { return outages(a.stores) },

		AuthorizePOST: a.AuthorizePOST, FrameAncestors: a.FrameAncestors, Records: &ownRecords{a.Issuer, a.FHIRBase},
		Lockout: a.Lockout.settings(), Audit: a.Audit, ClientAddress: requester.Address,
		IsHTTPS: requester.IsHTTPS, Logger: fhirerror.Limit(a.logger),
	}
}

// processStart is the start time of the first configuration in this process.
var processStart = sync.OnceValue(time.Now)

// outages returns the latest periods without service: before this process started, and while a remote store was unavailable.
func outages(s *stores.Set) []store.Outage {
	return append([]store.Outage{{EndedAt: processStart()}}, s.Outages()...)
}

// statesInUse keeps state of the previous configuration across reloads, by the location of the signing keys.
var statesInUse = caddy.NewUsagePool()

type stateInUse struct {
	keys     *keyring.KeysInUse // so that tokens stay valid if a key file was damaged or lost
	retained sync.Map           // values of [Retained] by retainedKey
}

func (*stateInUse) Destruct() error { return nil }

// loadKeys creates the keyring with the keys of the previous configuration at that location, and takes over its other state.
// It does not read the keys from storage.
func (a *App) loadKeys(place string) error {
	storage, err := keyStorage(a)
	if err != nil {
		return err
	}
	a.keys = keyring.New(storage, KeysName(a.Issuer), fhirerror.Limit(a.logger))
	pooled, _, err := statesInUse.LoadOrNew(place, func() (caddy.Destructor, error) {
		return &stateInUse{keys: a.keys.InUse()}, nil
	})
	if err != nil {
		return err
	}
	a.pooled, a.state = place, pooled.(*stateInUse)
	a.keys.InheritKeys(a.state.keys)
	return nil
}

var _ caddy.Destructor = (*stateInUse)(nil)

// keyStorage returns the storage of the signing keys: the durable store with store_key, and otherwise Caddy's storage.
func keyStorage(a *App) (keyring.Storage, error) {
	if len(a.StoreKeys) == 0 {
		return keyring.Locked{LockedStorage: a.ctx.Storage()}, nil
	}
	keys, err := sealingKeys(a.stores, a.StoreKeys)
	return &sealedkeys.Storage{Store: a.stores.Durable, Keys: keys, Earlier: a.ctx.Storage()}, err
}

// keyPlace returns a string that identifies the location of the keys.
func keyPlace(a *App) string {
	place := storageSettings(a.ctx)
	if len(a.StoreKeys) > 0 {
		place += " " + string(a.StoreRaw)
	}
	return place + " " + KeysName(a.Issuer)
}

// KeysName returns the name of an issuer's signing keys in Caddy's storage.
func KeysName(issuer string) string { return "fhir/keys/" + fhirbase.StorageName(issuer) + ".json" }

// sealingKeys returns the store keys, with their placeholders replaced.
func sealingKeys(s *stores.Set, configured []string) (keyring.SharedKeys, error) {
	if s.CheckDurability() != nil {
		return nil, errors.New("store_key puts the signing keys into the store, and those in memory would be lost in a restart; use another store")
	}
	return sharedkey.Resolve("store_key", configured, sealedkeys.NewKeys)
}

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

// Provision replaces placeholders and creates the authorization server. It neither reads nor writes storage, because `caddy
// validate` must not change anything.
func (a *App) Provision(ctx caddy.Context) error {
	a.ctx, a.logger, a.auditLog = ctx, fhirbase.NewLogger(ctx, "fhir"), audit.NewLog(fhirbase.NewLogger(ctx, fhirbase.AuditLogger))
	a.releaseHealthPort = func() error { return nil }
	if err := a.check(); err != nil {
		return err
	}
	location := keysLocation(a)
	if err := a.provisionStores(ctx); err != nil {
		return err
	}
	if err := metrics.Register(ctx); err != nil {
		return err
	}
	if err := a.loadKeys(location); err != nil {
		return err
	}
	config, err := a.serverConfig()
	if err != nil {
		return err
	}
	config.Checks = RetainedValue[revalidation.Checks](a)
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
	warnNoClients(a.logger, a.updater, &config)
	warnAboutClients(a.logger, a.Issuer, config.Clients)
	warnAboutPeople(a.logger, a, &config)
	_, err = placement.LoadSites(ctx)
	return err
}

// check returns an error for JSON configurations that the Caddyfile parser would reject.
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
	a.stores.LogWarnings(a.logger, ctx.Storage(), len(a.StoreKeys) > 0)
	return nil
}

// Start opens the health port and the stores. In the background, it prepares the signing keys, so that the first sign-in does
// not wait for them, and watches for keys that other gateways create.
func (a *App) Start() (err error) {
	processStart()
	if a.Health != "" {
		if _, a.releaseHealthPort, err = acquireHealthPort(a.Health, healthHandler(caddy.ActiveContext)); err != nil {
			return err
		}
	}
	if err := a.startStores(); err != nil {
		return errors.Join(err, a.releaseHealthPort())
	}
	ctx, cancel := context.WithCancel(a.ctx)
	var running sync.WaitGroup
	running.Go(func() { a.server.run(ctx) })
	if a.updater != nil {
		running.Go(func() { a.updater.Run(ctx) })
	}
	a.stopBackground = func() { cancel(); running.Wait() }
	go func() {
		a.prepareKeys()
		a.keys.Watch(a.ctx)
	}()
	return nil
}

// liveServer is the current authorization server and its background work.
type liveServer struct {
	current atomic.Pointer[authorize.Server]

	mu         sync.Mutex         // guards replacement of the server
	ctx        context.Context    // context of the background work; nil until the app starts
	cancel     context.CancelFunc // stops the background work of the current server
	background sync.WaitGroup
}

// replace makes s the current server and starts its background work in place of that of the previous server.
func (l *liveServer) replace(s *authorize.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current.Store(s)
	l.restart()
}

// run performs the background work until ctx is canceled.
func (l *liveServer) run(ctx context.Context) {
	l.mu.Lock()
	l.ctx = ctx
	l.restart()
	l.mu.Unlock()
	<-ctx.Done()
	l.background.Wait()
}

// restart stops the background work of the previous server and starts that of the current server. The caller must hold mu.
func (l *liveServer) restart() {
	if l.ctx == nil || l.ctx.Err() != nil {
		return
	}
	if l.cancel != nil {
		l.cancel()
	}
	ctx, end := context.WithCancel(l.ctx)
	l.cancel = end
	server := l.current.Load()
	l.background.Go(func() { server.Run(ctx) })
}

// prepareKeys loads the signing keys, or creates them.
func (a *App) prepareKeys() {
	switch err := a.keys.Refresh(a.ctx); {
	case err == nil:
		a.logger.Info("ready", "open", a.Issuer+cmp.Or(a.startPage, endpoint.Account))
	case errors.Is(err, context.Canceled), errors.Is(err, store.ErrUnavailable): // the store logs its own outages
	default:
		a.logger.Error("loading signing keys failed; retrying on first use", "error", err)
	}
}

func (a *App) startStores() error {
	if err := a.stores.Start(a.ctx, a.logger, a.Issuer, time.Duration(a.RevocationMaxLag)); err != nil {
		return err
	}
	a.stores.RecordDataLoss(func() bool { // if keys exist, tokens have been issued, so a missing store file means data loss
		return len(a.StoreKeys) == 0 && a.ctx.Storage().Exists(a.ctx, KeysStorageName(a.Issuer))
	})
	startedApps.Store(a, nil)
	return nil
}

// Stop logs the number of dropped audit events, stops the server's background work, and closes the health port. When the
// process exits, it defers the last two steps. Caddy stops its apps in any order, so its servers may accept requests during
// their shutdown_delay, while the health port informs load balancers that this gateway is stopping.
func (a *App) Stop() error {
	a.auditLog.Flush()
	if caddy.Exiting() {
		caddy.OnExit(func(context.Context) { _ = shutDown(a) })
		return nil
	}
	return shutDown(a)
}

func shutDown(a *App) error {
	if a.stopBackground != nil {
		a.stopBackground()
	}
	a.auditLog.Flush()
	return a.releaseHealthPort()
}

// listenForExit notifies the stores when the process exits. Stop would be too late: Caddy sometimes stops its servers first,
// which may take their entire grace period.
func (a *App) listenForExit(ctx caddy.Context) error {
	events, err := ctx.App("events")
	if err != nil {
		return err
	}
	return events.(*caddyevents.App).On("stopping", exitHandler{a.stores})
}

type exitHandler struct{ stores *stores.Set }

// Handle implements [caddyevents.Handler]. It ignores reloads, which also stop a configuration.
func (h exitHandler) Handle(context.Context, caddy.Event) error {
	if caddy.Exiting() {
		h.stores.PrepareShutdown()
	}
	return nil
}

// Cleanup releases the keys if Provision acquired them.
func (a *App) Cleanup() error {
	startedApps.Delete(a)
	if a.stateKey == "" {
		return nil
	}
	_, err := reloadStates.Delete(a.stateKey)
	return err
}

var (
	_ caddy.App          = (*App)(nil)
	_ caddy.Provisioner  = (*App)(nil)
	_ caddy.CleanerUpper = (*App)(nil)
)

func (a *App) serverConfig() (_ authorize.Config, err error) {
	c := a.settings()
	c.Passwords, c.Keys, c.Store, c.DurableStore = Passwords{}, a.keys, a.stores.Store, a.stores.Durable
	if c.Branding, err = a.Branding.resolve(); err != nil {
		return c, err
	}
	if err := a.resolve(&c); err != nil {
		return c, err
	}
	return c, loadFeatures(a, &c)
}

// resolve replaces placeholders in copies of the settings, because the configuration that Caddy displays must contain them.
func (a *App) resolve(c *authorize.Config) error {
	for _, u := range a.Users {
		user, err := u.resolve(a.logger)
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
		c.Users = append(c.Users, user)
	}
	for _, configured := range a.Clients {
		client, err := configured.resolve()
		if err != nil {
			return fmt.Errorf("client %q: %w", configured.ID, err)
		}
		c.Clients = append(c.Clients, client)
	}
	for _, p := range a.IdentityProviders {
		provider, err := p.resolve()
		if err != nil {
			return fmt.Errorf("idp %q: %w", p.Key, err)
		}
		c.IdentityProviders = append(c.IdentityProviders, provider)
	}
	return nil
}

// settings returns the server's configuration with all secrets omitted.
func (a *App) settings() authorize.Config {
	return authorize.Config{
		Issuer: a.Issuer, FHIRBasePath: a.FHIRBase, ScopeLimits: a.ScopeLimits,
		AccessTokenLifetime: time.Duration(a.AccessTokenLifetime),
		SessionLifetime:     time.Duration(a.SessionLifetime),
		SessionIdleTimeout:  time.Duration(a.SessionIdle),

		RefreshTokenLifetime:     time.Duration(a.RefreshTokenLifetime),
		RefreshTokenIdleLifetime: time.Duration(a.RefreshTokenIdleLifetime),
		RefreshTokenGrace:        time.Duration(a.RefreshTokenGrace),
		Outages:                  func() []store.Outage { return recentOutages(a.stores) },

		AuthorizePOST: a.AuthorizePOST, FrameAncestors: a.FrameAncestors, Records: &inProcessRecords{a.Issuer, a.FHIRBase},
		Lockout: a.Lockout.settings(), Audit: a.Audit, ClientAddress: requester.Address,
		IsHTTPS: requester.IsHTTPS, Logger: fhirerror.LimitFailures(a.logger),
	}
}

// processStart returns the time when the first configuration of this process was started.
var processStart = sync.OnceValue(time.Now)

// recentOutages returns the latest periods without service: the one before this process started, and outages of a remote store.
func recentOutages(s *stores.Set) []store.Outage {
	return append([]store.Outage{{EndedAt: processStart()}}, s.Outages()...)
}

// reloadStates stores the state that survives reloads, by the location of the signing keys.
var reloadStates = caddy.NewUsagePool()

type reloadState struct {
	keys           *keyring.KeysInUse // keys in use, so that tokens stay valid if a key file is damaged or lost
	retainedValues sync.Map           // values of [RetainedValue] by retainedKey
}

func (*reloadState) Destruct() error { return nil }

// loadKeys creates the keyring from the state of the previous configuration with the same location of the keys. If there is no
// such state, it creates one. It does not read keys from storage.
func (a *App) loadKeys(location string) error {
	storage, err := keyStorage(a)
	if err != nil {
		return err
	}
	a.keys = keyring.New(storage, KeysStorageName(a.Issuer), fhirerror.LimitFailures(a.logger))
	pooled, _, err := reloadStates.LoadOrNew(location, func() (caddy.Destructor, error) {
		return &reloadState{keys: a.keys.KeysInUse()}, nil
	})
	if err != nil {
		return err
	}
	a.stateKey, a.state = location, pooled.(*reloadState)
	a.keys.InheritKeys(a.state.keys)
	return nil
}

var _ caddy.Destructor = (*reloadState)(nil)

// keyStorage returns the storage of the signing keys: the durable store if store_key is set, otherwise Caddy's storage.
func keyStorage(a *App) (keyring.Storage, error) {
	if len(a.StoreKeys) == 0 {
		return keyring.LockingStorage{CertMagicStorage: a.ctx.Storage()}, nil
	}
	keys, err := sealingKeys(a.stores, a.StoreKeys)
	return &sealedkeys.Storage{Store: a.stores.Durable, Keys: keys, LegacyStorage: a.ctx.Storage()}, err
}

// keysLocation returns a string that identifies the location of the signing keys.
func keysLocation(a *App) string {
	location := storageIdentity(a.ctx)
	if len(a.StoreKeys) > 0 {
		location += " " + string(a.StoreRaw)
	}
	return location + " " + KeysStorageName(a.Issuer)
}

// KeysStorageName returns the name of an issuer's signing keys in Caddy's storage.
func KeysStorageName(issuer string) string {
	return "fhir/keys/" + fhirbase.StorageName(issuer) + ".json"
}

// sealingKeys returns the store keys and replaces their placeholders.
func sealingKeys(s *stores.Set, configured []string) (keyring.SharedKeys, error) {
	if s.CheckDurability() != nil {
		return nil, errors.New("store_key requires a durable store: signing keys in memory would be lost on a restart; use another store")
	}
	return sharedkey.Resolve("store_key", configured, sealedkeys.NewKeys)
}

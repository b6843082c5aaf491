package authorize

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/account"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/audit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/deprovisioning"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/flow"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revalidation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// A Feature extends a [Server] with endpoints, clients, and entries in the discovery documents.
type Feature interface {
	// Extend adds the feature to a server under construction. It is called again for each server that replaces another one
	// because users or clients changed. It must not do I/O.
	Extend(*Core) error
}

// Core is a [Server] under construction.
type Core struct {
	Config *Config // complete configuration

	Trail         *audit.Recorder               // recorder of audit events
	Responder     *endpoint.Responder           // JSON responses for clients
	Limiter       *lockout.Limiter              // lockout after failed attempts
	Accounts      *people.Accounts              // local users and federated accounts
	Factors       *factor.Factors               // second factors and passkeys
	Clients       *client.Registry              // client registry; features add client sources to it
	Authenticator *client.Authenticator         // client authentication
	Revocations   *revocation.Revocations       // revoked tokens and families
	Consents      *consent.Consents             // stored consents
	Sessions      *session.Sessions             // browser sessions
	Tokens        *token.Tokens                 // issues, refreshes and revokes tokens
	Launches      *launch.Launches              // launch contexts registered by EHRs
	Patients      *launch.Patients              // patients that a user may choose
	Pages         *page.Site                    // HTML pages
	Deprovisioner *deprovisioning.Deprovisioner // revokes sessions and grants at the request of identity providers

	// RegistrationEndpoint is the URL of the client registration endpoint (RFC 7591 §3), or "".
	RegistrationEndpoint string

	// SupportsEHRLaunch announces EHR launch in the discovery documents. It is implied if any client has LaunchContext.
	SupportsEHRLaunch bool

	// SignInTargets contains the pages that require a sign-in, by name, in addition to the account page.
	SignInTargets map[string]signin.Target

	// OpenRequest opens request objects (RFC 9101). If it is nil, requests with request objects are rejected.
	OpenRequest flow.OpenRequest

	routes             map[string]http.Handler
	publicPaths        []string // paths that allow CORS from all origins
	metadataExtensions []func(*Metadata)
	smartExtensions    []func(*smart.Configuration)
}

// Handle adds an endpoint for path, and for all paths below it if path ends with a slash. The endpoint requires https and
// accepts only the given methods.
func (a *Core) Handle(path string, serve http.HandlerFunc, methods ...string) {
	a.routes[path] = a.Responder.Handler(serve, methods...)
}

// HandlePublic is like [Core.Handle], but the endpoint allows CORS from all origins.
func (a *Core) HandlePublic(path string, serve http.HandlerFunc, methods ...string) {
	a.publicPaths = append(a.publicPaths, path)
	a.Handle(path, serve, methods...)
}

// ExtendMetadata registers a function that extends the discovery document (OpenID Connect Discovery §3, RFC 8414 §2) when
// it is first requested.
func (a *Core) ExtendMetadata(add func(*Metadata)) {
	a.metadataExtensions = append(a.metadataExtensions, add)
}

// ExtendSMART registers a function that extends the SMART configuration (SMART App Launch 2.2, Conformance) when it
// is first requested.
func (a *Core) ExtendSMART(add func(*smart.Configuration)) {
	a.smartExtensions = append(a.smartExtensions, add)
}

func newCore(c *Config, of *localEntries) (*Core, error) {
	a := &Core{Config: c, Trail: &audit.Recorder{OnEvent: c.Audit, ClientAddress: c.ClientAddress}, routes: map[string]http.Handler{}, SignInTargets: map[string]signin.Target{}}
	a.Responder = &endpoint.Responder{
		Issuer: c.Issuer, IsHTTPS: c.IsHTTPS, Logger: c.Logger, Trail: a.Trail,
		AuditKinds: map[string]string{endpoint.PushedAuthorization: audit.KindAuthorization},
	}
	a.Limiter = &lockout.Limiter{
		Policy: c.Lockout, Store: c.DurableStore, Keys: c.Keys, Devices: &browser.Devices{Keys: c.Keys}, Trail: a.Trail, Logger: c.Logger,
	}
	if err := a.addPeople(c, of); err != nil {
		return nil, err
	}
	a.addFactors(c)
	a.Authenticator = &client.Authenticator{
		Issuer: c.Issuer, Clients: a.Clients, DurableStore: c.DurableStore, Limiter: a.Limiter, Logger: c.Logger,
	}
	a.Revocations = revocation.New(c.Store, c.DurableStore, c.Logger)
	a.Consents = &consent.Consents{DurableStore: c.DurableStore, Revocations: a.Revocations, LoadGenerations: a.consentGenerations}
	a.addSessions(c)
	a.Patients = &launch.Patients{Records: c.Records, FHIRBase: c.fhirBase(), Store: c.DurableStore}
	a.addTokens(c)
	a.Accounts.RevokeUserGrants = a.Tokens.Revoker.RevokeUserGrants
	var err error
	if a.Pages, err = page.New(c.Issuer, c.Branding, c.Logger); err != nil {
		return nil, err
	}
	for provider := range a.Pages.Icons() {
		if a.Accounts.Providers[provider] == nil {
			return nil, fmt.Errorf("branding: icon: no idp has the key %q", provider)
		}
	}
	a.Launches = launch.NewLaunches(c.Store)
	a.Deprovisioner = &deprovisioning.Deprovisioner{People: people.Finder{Accounts: a.Accounts}, Sessions: a.Sessions, Revoker: a.Tokens.Revoker, Logger: c.Logger}
	a.Clients.Sources = nil // removes the sources added by the previous server's features
	for _, f := range c.Features {
		if err := f.Extend(a); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Core) addPeople(c *Config, of *localEntries) (err error) {
	a.Clients = of.clients
	a.Accounts = &people.Accounts{
		Directory: of.directory, Clients: of.clients,
		Providers: map[string]*people.Provider{}, Store: c.Store, DurableStore: c.DurableStore, FHIRBase: c.fhirBase(), Logger: c.Logger,
		Searcher: launch.Searcher{Records: c.Records, Trail: a.Trail},
		Lifetime: c.SessionLifetime + codeLifetime + c.AccessTokenLifetime + time.Minute,
	}
	a.Trail.FindPerson = people.Finder{Accounts: a.Accounts}.Describe
	if a.Accounts.ScopeLimits, err = scopelimit.New(c.ScopeLimits); err != nil {
		return err
	}
	for _, idp := range c.IdentityProviders {
		if p := of.providers[idp.Key]; p != nil {
			a.Accounts.Providers[idp.Key], a.Accounts.ProviderKeys = p, append(a.Accounts.ProviderKeys, idp.Key)
			continue
		}
		if err := a.Accounts.AddProvider(idp, c.Issuer+endpoint.Callback+idp.Key); err != nil {
			return err
		}
	}
	return a.Accounts.ScopeLimits.CheckNames(tokenClaims(c, of.directory))
}

func (a *Core) addFactors(c *Config) {
	enrollments := &factor.Enrollments{DurableStore: c.DurableStore, Keys: c.Keys, Generation: a.Accounts.Directory.Generation}
	a.Limiter.Devices.Binding = a.deviceBinding
	a.Factors = &factor.Factors{
		Directory: a.Accounts.Directory, Enrollments: enrollments, OTP: &people.OTP{DurableStore: c.DurableStore, Logger: c.Logger}, Logger: c.Logger,
		Passkeys: factor.NewPasskeys(c.Issuer, enrollments, a.Accounts.Directory, &browser.Sealer{Keys: c.Keys}, c.Store),
	}
}

// consentGenerations returns the generations of a user and a client.
func (a *Core) consentGenerations(user, clientID string) consent.Generations {
	generations := consent.Generations{User: a.Accounts.Directory.Generation(user)}
	if client := a.Clients.FindConfigured(clientID); client != nil {
		generations.Client = client.Generation
	}
	return generations
}

// deviceBinding returns the value to which the known browsers of an account are bound.
func (a *Core) deviceBinding(ctx context.Context, account string) (string, error) {
	user := a.Accounts.Directory.User(account)
	if user == nil {
		return "", nil
	}
	return a.Factors.BindingHash(ctx, user)
}

func (a *Core) addSessions(c *Config) {
	signIns := revalidation.New(revalidation.Config{
		DurableStore: c.DurableStore, Keys: c.Keys, Accounts: a.Accounts, SessionLifetime: c.SessionLifetime, AccessTokenLifetime: c.AccessTokenLifetime,
		GrantLifetime: c.RefreshTokenLifetime, Revocations: a.Revocations, SessionKey: session.Key, Checks: c.Checks, Logger: c.Logger,
		EndSignIn: func(ctx context.Context, signIn revalidation.SignIn) error {
			return a.Tokens.Revoker.RevokeSignIn(ctx, signIn)
		},
	})
	a.Sessions = &session.Sessions{
		Durable: c.DurableStore, Store: c.Store, Lifetime: c.SessionLifetime, IdleTimeout: c.SessionIdleTimeout,
		Accounts: a.Accounts, Devices: a.Limiter.Devices, SignIns: signIns, Revocations: a.Revocations,
		Participants: &session.Participants{Clients: a.Clients, Durable: c.DurableStore, Lifetime: c.SessionLifetime},
		Notifier:     session.NewNotifier(c.Issuer, c.Keys, a.Trail, c.Logger),
		Trail:        a.Trail, Logger: c.Logger,
	}
}

func (a *Core) addTokens(c *Config) {
	a.Tokens = token.New(token.Config{
		Responder: a.Responder, FHIRBase: c.fhirBase(), Keys: c.Keys, Store: c.Store, Durable: c.DurableStore,
		Lifetimes: token.Lifetimes{
			AccessToken: c.AccessTokenLifetime, Code: codeLifetime, Session: c.SessionLifetime,
			Refresh: c.RefreshTokenLifetime, RefreshIdle: c.RefreshTokenIdleLifetime, RefreshGrace: c.RefreshTokenGrace, Outages: c.Outages,
		},
		Authenticator: a.Authenticator, CountRequest: c.CountToken, Accounts: a.Accounts, Patients: a.Patients, Consents: a.Consents, Revocations: a.Revocations, Sessions: a.Sessions,
	})
}

// addRoutes adds the endpoints of the core server.
func (a *Core) addRoutes() {
	c := a.Config
	maps.Copy(a.routes, a.Tokens.Endpoints)
	a.HandlePublic(endpoint.SMARTStyle, a.Pages.SMARTStyle().ServeHTTP, http.MethodGet, http.MethodHead)
	if logo := a.Pages.Logo(); logo != nil {
		a.Handle(endpoint.Logo, logo.ServeHTTP, http.MethodGet, http.MethodHead)
	}
	for provider, icon := range a.Pages.Icons() {
		a.Handle(endpoint.Logo+"/"+provider, icon.ServeHTTP, http.MethodGet, http.MethodHead)
	}
	a.addFlow()
	a.routes[endpoint.Account] = account.New(account.Config{
		Responder: a.Responder, Pages: a.Pages, Keys: c.Keys, Accounts: a.Accounts, Factors: a.Factors, Sessions: a.Sessions,
		Patients: a.Patients, Apps: a.Tokens.Apps, Revoker: a.Tokens.Revoker, Limiter: a.Limiter, Describe: flow.Describe,
		ChangePassword: c.ChangePassword,
	})
	a.addDocuments()
}

func (a *Core) addFlow() {
	c := a.Config
	maps.Copy(a.routes, flow.Endpoints(flow.Config{
		Responder: a.Responder, AuthorizePOST: c.AuthorizePOST, FrameAncestors: c.FrameAncestors,
		Pages: a.Pages, Keys: c.Keys, Store: c.Store, Limiter: a.Limiter, Authenticator: a.Authenticator,
		Accounts: a.Accounts, Factors: a.Factors, Consents: a.Consents, Sessions: a.Sessions, Tokens: a.Tokens,
		RefreshLifetime: c.RefreshTokenLifetime, OpenRequest: a.OpenRequest,
		Launches: a.Launches, Patients: a.Patients, SignInTargets: a.SignInTargets,
	}))
	backchannel := &session.BackchannelLogout{Responder: a.Responder, Store: c.Store, Sessions: a.Sessions}
	for key, p := range a.Accounts.Providers {
		a.Handle(endpoint.BackchannelLogout+key, p.Endpoint(backchannel.Serve), http.MethodPost)
	}
}

func (a *Core) addDocuments() {
	c := a.Config
	discovery := &discovery{
		Responder: a.Responder, keys: c.Keys, fhirBase: c.fhirBase(), metadataExtensions: a.metadataExtensions, smartExtensions: a.smartExtensions, registration: a.RegistrationEndpoint,
		features: &supportedFeatures{
			clients: a.Clients, canQueryFHIRServer: c.Records != nil, authorizePOST: c.AuthorizePOST,
			supportsEHRLaunch: a.SupportsEHRLaunch || a.Clients.SupportsEHRLaunch(),
		},
	}
	openid := discovery.document(func() any { return discovery.metadata() })
	smart := discovery.document(func() any { return discovery.smartConfiguration() })
	resource := discovery.document(discovery.protectedResource)
	for path, document := range map[string]http.HandlerFunc{
		endpoint.JWKS:                                       discovery.jwks,
		"/.well-known/openid-configuration":                 openid,
		"/.well-known/oauth-authorization-server":           openid,
		oauth2.ProtectedResourcePath + c.FHIRBasePath:       resource,
		c.FHIRBasePath + "/.well-known/smart-configuration": smart,
	} {
		a.HandlePublic(path, document, http.MethodGet, http.MethodHead)
	}
}

func tokenClaims(c *Config, users *people.Directory) map[string][]string {
	names := map[string][]string{}
	if users.Len() > 0 {
		names[people.Local] = nil
	}
	for _, p := range c.IdentityProviders {
		names[p.Key] = slices.Collect(maps.Keys(p.TokenClaims))
	}
	return names
}

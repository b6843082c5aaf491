package authorize

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/account"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/administration"
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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/sandbox"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/scopelimit"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/brands"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/oauth2"
)

// assembly puts a Server together, from the ground up.
type assembly struct {
	trail         *audit.Recorder
	responder     *endpoint.Responder
	limiter       *lockout.Limiter
	accounts      *people.Accounts
	factors       *factor.Factors
	clients       *client.Registry
	authenticator *client.Authenticator
	revocations   *revocation.Revocations
	consents      *consent.Consents
	sessions      *session.Sessions
	tokens        *token.Tokens
	site          *page.Site
}

func newAssembly(c *Config, of *entries) (*assembly, error) {
	a := &assembly{trail: &audit.Recorder{Audit: c.Audit, ClientAddress: c.ClientAddress}}
	a.responder = &endpoint.Responder{Issuer: c.Issuer, IsHTTPS: c.IsHTTPS, Logger: c.Logger, Trail: a.trail}
	a.limiter = &lockout.Limiter{
		Policy: c.Lockout, Store: c.Durable, Keys: c.Keys, Devices: &browser.Devices{Keys: c.Keys}, Trail: a.trail, Logger: c.Logger,
	}
	if err := a.addPeople(c, of); err != nil {
		return nil, err
	}
	a.addFactors(c)
	a.authenticator = &client.Authenticator{
		Issuer: c.Issuer, Clients: a.clients, Durable: c.Durable, Limiter: a.limiter, Logger: c.Logger,
	}
	a.revocations = revocation.New(c.Store, c.Durable, c.Logger)
	a.consents = &consent.Consents{Durable: c.Durable, Revocations: a.revocations, Between: a.between}
	a.addSessions(c)
	a.addTokens(c)
	a.accounts.EndPerson = a.tokens.Revoker.EndPerson
	var err error
	a.site, err = page.New(c.Issuer, c.Branding, c.Logger)
	return a, err
}

func (a *assembly) addPeople(c *Config, of *entries) (err error) {
	a.clients = of.clients
	a.accounts = &people.Accounts{
		Directory: of.directory, Clients: of.clients,
		Providers: map[string]*people.Provider{}, Store: c.Store, Durable: c.Durable, FHIRBase: c.fhirBase(), Logger: c.Logger,
		Searcher:      launch.Searcher{Records: c.Records, Trail: a.trail},
		Lifetime:      c.SessionLifetime + c.CodeLifetime + c.AccessTokenLifetime + time.Minute,
		OmitUserNames: c.OmitUserNames,
	}
	a.trail.Person = people.Finder{Accounts: a.accounts}.Describe
	if a.accounts.ScopeLimits, err = scopelimit.New(c.ScopeLimits); err != nil {
		return err
	}
	for _, idp := range c.IdentityProviders {
		if p := of.providers[idp.Key]; p != nil {
			a.accounts.Providers[idp.Key], a.accounts.ProviderKeys = p, append(a.accounts.ProviderKeys, idp.Key)
			continue
		}
		if err := a.accounts.AddProvider(idp, c.Issuer+endpoint.Callback+idp.Key); err != nil {
			return err
		}
	}
	return a.accounts.ScopeLimits.CheckNames(tokenClaims(c, of.directory))
}

func (a *assembly) addFactors(c *Config) {
	enrolments := &factor.Enrolments{Durable: c.Durable, Keys: c.Keys, Generation: a.accounts.Directory.Generation}
	a.limiter.Devices.Binding = a.bindingOf
	a.factors = &factor.Factors{
		Directory: a.accounts.Directory, Enrolments: enrolments, OTP: &people.OTP{Durable: c.Durable, Logger: c.Logger}, Logger: c.Logger,
		Passkeys: factor.NewPasskeys(c.Issuer, enrolments, a.accounts.Directory, &browser.Sealer{Keys: c.Keys}, c.Store),
	}
}

// between are the generations of a person and a client.
func (a *assembly) between(user, clientID string) consent.Between {
	between := consent.Between{User: a.accounts.Directory.Generation(user)}
	if client := a.clients.Configured(clientID); client != nil {
		between.Client = client.Generation
	}
	return between
}

// bindingOf is what browsers are known for of an account.
func (a *assembly) bindingOf(ctx context.Context, account string) (string, error) {
	user := a.accounts.Directory.User(account)
	if user == nil {
		return "", nil
	}
	return a.factors.Binding(ctx, user)
}

func (a *assembly) addSessions(c *Config) {
	signIns := revalidation.New(revalidation.Config{
		Durable: c.Durable, Keys: c.Keys, Accounts: a.accounts, Session: c.SessionLifetime, AccessToken: c.AccessTokenLifetime,
		Refresh: c.RefreshTokenLifetime, Revocations: a.revocations, SessionKey: session.Key, Checks: c.Checks, Logger: c.Logger,
		End: func(ctx context.Context, signIn revalidation.SignIn) error {
			return a.tokens.Revoker.EndSignIn(ctx, signIn)
		},
	})
	a.sessions = &session.Sessions{
		Durable: c.Durable, Store: c.Store, Lifetime: c.SessionLifetime, Idle: c.SessionIdle,
		Accounts: a.accounts, Devices: a.limiter.Devices, SignIns: signIns, Revocations: a.revocations,
		Participants: &session.Participants{Clients: a.clients, Durable: c.Durable, Lifetime: c.SessionLifetime},
		Notifier:     session.NewNotifier(c.Issuer, c.Keys, a.trail, c.Logger),
		Trail:        a.trail, Logger: c.Logger,
	}
}

func (a *assembly) addTokens(c *Config) {
	a.tokens = token.New(token.Config{
		Responder: a.responder, FHIRBase: c.fhirBase(), Keys: c.Keys, Store: c.Store, Durable: c.Durable,
		Lifetimes: token.Lifetimes{
			AccessToken: c.AccessTokenLifetime, Code: c.CodeLifetime, Session: c.SessionLifetime,
			Refresh: c.RefreshTokenLifetime, RefreshIdle: c.RefreshTokenIdleLifetime, RefreshGrace: c.RefreshTokenGrace, Outages: c.Outages,
		},
		Authenticator: a.authenticator, Count: c.CountToken, Accounts: a.accounts, Patients: &launch.Patients{Records: c.Records, FHIRBase: c.fhirBase()}, Consents: a.consents, Revocations: a.revocations, Sessions: a.sessions,
	})
}

// routes returns the endpoints by path.
func (a *assembly) routes(c *Config) (map[string]http.Handler, error) {
	routes := maps.Clone(a.tokens.Endpoints)
	if a.clients.Registrar != nil {
		registration := &client.RegistrationEndpoint{Responder: a.responder, Registrar: a.clients.Registrar, Limiter: a.limiter}
		routes[endpoint.Register] = a.responder.Handler(registration.Serve, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete)
	}
	routes[endpoint.SMARTStyle] = a.responder.Handler(a.site.SMARTStyle().ServeHTTP, http.MethodGet, http.MethodHead)
	if logo := a.site.Logo(); logo != nil {
		routes[endpoint.Logo] = a.responder.Handler(logo.ServeHTTP, http.MethodGet, http.MethodHead)
	}
	launches := launch.NewLaunches(c.Store)
	a.addFlow(c, launches, routes)
	a.addDeprovisioning(c, routes)
	routes[endpoint.Account] = account.New(account.Config{
		Responder: a.responder, Pages: a.site, Keys: c.Keys, Accounts: a.accounts, Factors: a.factors, Sessions: a.sessions,
		Patients: &launch.Patients{Records: c.Records, FHIRBase: c.fhirBase()},
		Apps:     a.tokens.Apps, Revoker: a.tokens.Revoker, Limiter: a.limiter, Describe: flow.Describe,
	})
	if c.LaunchPage {
		a.addSandbox(c, launches, routes)
	}
	a.addDocuments(c, routes)
	return routes, a.addAdministration(c, routes)
}

func (a *assembly) addAdministration(c *Config, routes map[string]http.Handler) error {
	if c.Administration == nil {
		return nil
	}
	routes[endpoint.Admin] = administration.New(administration.Config{
		Responder: a.responder, Settings: *c.Administration, Pages: a.site, Keys: c.Keys, Accounts: a.accounts, Factors: a.factors, Sessions: a.sessions,
	})
	return c.Administration.Check()
}

func (a *assembly) addSandbox(c *Config, launches *launch.Launches, routes map[string]http.Handler) {
	routes[endpoint.LaunchPage] = sandbox.LaunchPage(sandbox.Config{
		Responder: a.responder, Pages: a.site, Keys: c.Keys, Sessions: a.sessions, Factors: a.factors, Clients: a.clients,
		Launches: launches, Patients: &launch.Patients{Records: c.Records, FHIRBase: c.fhirBase()},
	})
	routes[endpoint.SandboxApp] = a.responder.Handler(sandbox.ServeApp(a.site, c.Issuer, c.fhirBase()), http.MethodGet)
}

func (a *assembly) addFlow(c *Config, launches *launch.Launches, routes map[string]http.Handler) {
	maps.Copy(routes, flow.Endpoints(flow.Config{
		Responder: a.responder, AuthorizePOST: c.AuthorizePOST, OmitIssuer: c.OmitIssuer, FrameAncestors: c.FrameAncestors,
		Pages: a.site, Keys: c.Keys, Store: c.Store, Durable: c.Durable, Limiter: a.limiter, Authenticator: a.authenticator,
		Accounts: a.accounts, Factors: a.factors, Consents: a.consents, Sessions: a.sessions, Tokens: a.tokens,
		RefreshLifetime: c.RefreshTokenLifetime,
		Launches:        launches, Patients: &launch.Patients{Records: c.Records, FHIRBase: c.fhirBase()},
	}))
	backchannel := &session.BackchannelLogout{Responder: a.responder, Store: c.Store, Sessions: a.sessions}
	for key, p := range a.accounts.Providers {
		routes[endpoint.BackchannelLogout+key] = a.responder.Handler(p.Endpoint(backchannel.Serve), http.MethodPost)
	}
}

// addDeprovisioning adds the endpoints at which providers say who has left.
func (a *assembly) addDeprovisioning(c *Config, routes map[string]http.Handler) {
	ending := &deprovisioning.Ending{People: people.Finder{Accounts: a.accounts}, Sessions: a.sessions, Revoker: a.tokens.Revoker, Logger: c.Logger}
	events := &deprovisioning.Events{Responder: a.responder, Durable: c.Durable, Ending: ending}
	scim := &deprovisioning.SCIM{Responder: a.responder, Limiter: a.limiter, Ending: ending}
	for key, p := range a.accounts.Providers {
		routes[endpoint.SecurityEvents+key] = a.responder.Handler(p.Endpoint(events.Serve), http.MethodPost)
		if p.SCIM == "" {
			continue
		}
		if client.IsGuessable(p.SCIM) {
			c.Logger.Warn("scim of an idp has less than 128 bits, and could be guessed; make another with: "+client.SecretCommand, "idp", key)
		}
		routes[endpoint.SCIM+key+"/"] = a.responder.Handler(p.Endpoint(scim.Serve), deprovisioning.Methods...)
	}
}

func (a *assembly) addDocuments(c *Config, routes map[string]http.Handler) {
	discovery := &discovery{
		Responder: a.responder, omitIssuer: c.OmitIssuer, keys: c.Keys, fhirBase: c.fhirBase(), brands: c.UserAccessBrands,
		offer: &offer{
			clients: a.clients, hasRecords: c.Records != nil, authorizePOST: c.AuthorizePOST,
			serves: func(path string) bool { return routes[path] != nil },
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
		routes[path] = a.responder.Handler(document, http.MethodGet, http.MethodHead)
	}
	if c.UserAccessBrands != nil {
		routes[c.FHIRBasePath+brands.Path] = a.responder.Handler(c.UserAccessBrands.ServeHTTP, http.MethodGet, http.MethodHead)
	}
}

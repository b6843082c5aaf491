package flow

import (
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/factor"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/page"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/signin"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Config configures the endpoints for browsers.
type Config struct {
	*endpoint.Responder
	AuthorizePOST  bool                     // whether authorization requests by POST are accepted; default false
	FrameAncestors []string                 // origins that may frame pages of authorization requests; default none
	Keys           keyring.Keys             // seals state stored in browsers
	Store          store.Store              // stores pending requests
	Pages          *page.Site               // HTML pages
	Limiter        *lockout.Limiter         // throttles wrong passwords and codes
	Authenticator  *client.Authenticator    // client authentication and registry
	Accounts       *people.Accounts         // people who may sign in
	Factors        *factor.Factors          // second factors and passkeys
	Consents       *consent.Consents        // stored consents
	Sessions       *session.Sessions        // browser sessions
	Tokens         *token.Tokens            // issuer of codes and tokens
	Launches       *launch.Launches         // registered EHR launches
	Patients       *launch.Patients         // patients that a person may choose
	SignInTargets  map[string]signin.Target // pages that require a sign-in, by name, in addition to the account page

	RefreshLifetime time.Duration // maximum lifetime of a grant
	OpenRequest     OpenRequest   // opens request objects; if nil, they are rejected
}

// Endpoints returns the handlers of the browser endpoints by path.
func Endpoints(c Config) map[string]http.Handler {
	renderer := &signin.Renderer{
		Site: c.Pages, Sealer: &browser.Sealer{Keys: c.Keys}, Trail: c.Trail, Issuers: c.Accounts.Issuers(),
		Ancestors: strings.Join(c.FrameAncestors, " "),
	}
	renderer.Header = &signin.SessionHeader{Sealer: renderer.Sealer, Sessions: c.Sessions}
	authorizer := newAuthorizer(&c, renderer)
	signIn := signin.New(signin.Config{
		Responder: c.Responder, Renderer: renderer, Store: c.Store, Limiter: c.Limiter, Accounts: c.Accounts, Factors: c.Factors,
		Sessions: c.Sessions, Targets: c.SignInTargets, RestoreRequest: authorizer.restoreRequest,
	})
	authorizer.stepUp, authorizer.offlineAccess = signIn.StepUp, signIn.OfflineAccess

	endpoints := signIn.Endpoints
	maps.Copy(endpoints, requestEndpoints(&c, signIn, authorizer))
	maps.Copy(endpoints, signedInEndpoints(&c, signIn, authorizer))
	maps.Copy(endpoints, logoutEndpoints(&c, renderer))
	clients := c.Authenticator.Clients
	if len(clients.Sources) > 0 {
		endpoints[endpoint.ClientLogo] = c.Handler(newClientLogos(c.Responder, clients).serve, http.MethodGet)
	}
	if clients.SupportsEHRLaunch() {
		launches := &launchEndpoint{responder: c.Responder, authenticator: c.Authenticator, accounts: c.Accounts, launches: c.Launches, patients: c.Patients}
		endpoints[endpoint.Launch] = c.Handler(launches.serve, http.MethodPost)
	}
	return endpoints
}

func newAuthorizer(c *Config, renderer *signin.Renderer) *authorizer {
	clients := c.Authenticator.Clients
	return &authorizer{
		renderer: renderer,
		requests: &requests{
			fhirBase: c.Accounts.FHIRBase, accounts: c.Accounts, clients: clients, verifier: c.Tokens.Verifier, launches: c.Launches,
			openRequest: c.OpenRequest,
		},
		responses: &responses{issuer: c.Issuer, renderer: renderer},
		accounts:  c.Accounts, consents: c.Consents, launches: c.Launches, grants: c.Tokens.Grants,
		codes: c.Tokens.Codes, tokens: c.Tokens.Issuer,
	}
}

// formMethods lists the methods of endpoints that show and receive a form.
var formMethods = []string{http.MethodGet, http.MethodPost}

// requestEndpoints returns the endpoints that accept authorization requests.
func requestEndpoints(c *Config, signIn *signin.SignIn, authorizer *authorizer) map[string]http.Handler {
	pushed := &pushedRequests{store: c.Store, pendingCount: store.NewMemory(maxPendingPushes, 0), sealed: &sealedPushes{keys: c.Keys, store: c.Store}}
	authorization := &authorizationEndpoint{renderer: authorizer.renderer, pushed: pushed, authorizer: authorizer, signIn: signIn}
	push := &pushEndpoint{responder: c.Responder, authenticator: c.Authenticator, requests: authorizer.requests, pushed: pushed}
	authorize := []string{http.MethodGet}
	if c.AuthorizePOST {
		authorize = formMethods
	}
	return map[string]http.Handler{
		endpoint.Authorize:           c.Handler(authorization.serve, authorize...),
		endpoint.PushedAuthorization: c.Handler(push.serve, http.MethodPost),
	}
}

// signedInEndpoints returns the pages for signed-in people.
func signedInEndpoints(c *Config, signIn *signin.SignIn, authorizer *authorizer) map[string]http.Handler {
	renderer := authorizer.renderer
	pages := &signedInPages{renderer: renderer, accounts: c.Accounts, sessions: c.Sessions, signIn: signIn, authorizer: authorizer}
	account := &accountChoice{renderer: renderer, signIn: signIn, authorizer: authorizer}
	picker := &patientPicker{renderer: renderer, patients: c.Patients, authorizer: authorizer, logger: c.Logger}
	consent := &consentPage{
		renderer: renderer, responses: authorizer.responses, authorizer: authorizer, patients: c.Patients,
		offlineAccess: offlineAccessChoice{c.RefreshLifetime}, logger: c.Logger,
	}
	endpoints := map[string]http.Handler{}
	for path, page := range map[string]signedInPage{
		endpoint.SelectAccount:   {show: account.show, submit: account.submit, skipsMaxAge: true},
		endpoint.SelectPatient:   {show: picker.showPatients, submit: picker.submitPatient},
		endpoint.SelectEncounter: {show: picker.showEncounters, submit: picker.submitEncounter},
		endpoint.Consent:         {show: pages.withLaunchContext(consent.show), submit: pages.withLaunchContext(consent.submit), deny: consent.deny},
	} {
		endpoints[path] = c.Handler(pages.handler(path, page), formMethods...)
	}
	return endpoints
}

// logoutEndpoints returns the endpoints for logout at the gateway and at identity providers.
func logoutEndpoints(c *Config, renderer *signin.Renderer) map[string]http.Handler {
	logout := &logoutEndpoint{
		renderer: renderer, issuer: c.Issuer, clients: c.Authenticator.Clients, accounts: c.Accounts, sessions: c.Sessions,
		verifier: c.Tokens.Verifier, logger: c.Logger,
	}
	endpoints := map[string]http.Handler{endpoint.Logout: c.Handler(logout.serve, formMethods...)}
	for key, p := range c.Accounts.Providers {
		endpoints[endpoint.Logout+"/"+key] = c.Handler(p.Endpoint(logout.callback), http.MethodGet)
	}
	return endpoints
}

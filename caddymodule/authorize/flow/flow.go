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
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/fairqueue"
)

// Config is what the endpoints for browsers need.
type Config struct {
	*endpoint.Responder
	AuthorizePOST  bool                  // also accept authorization requests by POST
	FrameAncestors []string              // origins that may frame pages of authorization requests
	OmitIssuer     bool                  // leave iss (RFC 9207) out of authorization responses
	Keys           keyring.Keys          // seal what browsers keep
	Store, Durable store.Store           // for pending requests, and for what outlives a restart
	Pages          *page.Site            // what people see
	Limiter        *lockout.Limiter      // counts wrong passwords and codes
	Authenticator  *client.Authenticator // knows the clients
	Accounts       *people.Accounts      // who may sign in
	Factors        *factor.Factors       // what else people prove themselves by
	Consents       *consent.Consents     // what people allow clients
	Sessions       *session.Sessions     // who is signed in
	Tokens         *token.Tokens         // issues codes and tokens
	Launches       *launch.Launches      // knows what EHRs launch
	Patients       *launch.Patients      // finds whom a person may choose

	RefreshLifetime time.Duration // of a grant, at most
}

// Endpoints returns the endpoints that browsers are sent to, by path.
func Endpoints(c Config) map[string]http.Handler {
	step := newStep(&c)
	authorizer := &authorizer{
		step: step, accounts: c.Accounts, consents: c.Consents, launches: c.Launches, grants: c.Tokens.Grants,
		codes: c.Tokens.Codes, tokens: c.Tokens.Issuer,
	}
	pending := &pendingFactors{step: step, store: c.Store, used: store.NewLatest(maxUsedFactors, secondFactorLifetime)}
	authorizer.stepUp = &stepUp{step: step, pending: pending, factors: c.Factors, sessions: c.Sessions}
	secondFactor := &secondFactorStep{
		step: step, pending: pending, sessions: c.Sessions, limiter: c.Limiter, factors: c.Factors, authorizer: authorizer,
	}
	signIn := &signInEndpoint{step: step, accounts: c.Accounts, limiter: c.Limiter, secondFactor: secondFactor}

	endpoints := map[string]http.Handler{}
	maps.Copy(endpoints, requestEndpoints(&c, signIn, authorizer))
	maps.Copy(endpoints, signedInEndpoints(&c, signIn, authorizer))
	maps.Copy(endpoints, providerEndpoints(&c, signIn))
	if c.Authenticator.Clients.Registrar != nil {
		endpoints[endpoint.ClientLogo] = c.Handler(newClientLogos(&c).serve, http.MethodGet)
	}
	if c.Authenticator.Clients.Any(func(c *client.Client) bool { return c.LaunchContext }) {
		launches := &launchEndpoint{Responder: c.Responder, authenticator: c.Authenticator, accounts: c.Accounts, launches: c.Launches, patients: c.Patients}
		endpoints[endpoint.Launch] = c.Handler(launches.serve, http.MethodPost)
	}
	return endpoints
}

// form are the methods of endpoints that show a form and receive it.
var form = []string{http.MethodGet, http.MethodPost}

// requestEndpoints take authorization requests, and sign people in.
func requestEndpoints(c *Config, signIn *signInEndpoint, authorizer *authorizer) map[string]http.Handler {
	step := signIn.step
	pushed := &pushedRequests{keys: c.Keys, store: c.Store, count: store.NewMemory(maxPushed, 0)}
	authorization := &authorizationEndpoint{
		step: step, pushed: pushed, accounts: c.Accounts, sessions: c.Sessions, authorizer: authorizer, signIn: signIn,
	}
	push := &pushEndpoint{Responder: c.Responder, authenticator: c.Authenticator, requests: step.requests, pushed: pushed}
	authorize := []string{http.MethodGet}
	if c.AuthorizePOST {
		authorize = form
	}
	return map[string]http.Handler{
		endpoint.Authorize:           c.Handler(authorization.serve, authorize...),
		endpoint.PushedAuthorization: c.Handler(push.serve, http.MethodPost),
		endpoint.Login:               c.Handler(authorization.serveLogin, form...),
	}
}

// signedInEndpoints are the pages for people who are signed in.
func signedInEndpoints(c *Config, signIn *signInEndpoint, authorizer *authorizer) map[string]http.Handler {
	step := signIn.step
	signedIn := &signedInPages{
		step: step, accounts: c.Accounts, sessions: c.Sessions, consents: c.Consents, patients: c.Patients, signIn: signIn, authorizer: authorizer, logger: c.Logger,
		lasting: lasting{c.RefreshLifetime},
	}
	picker := &picker{step: step, patients: c.Patients, authorizer: authorizer, logger: c.Logger}
	return map[string]http.Handler{
		endpoint.SelectAccount:   c.Handler(signedIn.page(endpoint.SelectAccount, step.pages.showSelectAccount, signedIn.submitSelectAccount), form...),
		endpoint.SelectPatient:   c.Handler(signedIn.page(endpoint.SelectPatient, picker.showPatients, picker.submitPatient), form...),
		endpoint.SelectEncounter: c.Handler(signedIn.page(endpoint.SelectEncounter, picker.showEncounters, picker.submitEncounter), form...),
		endpoint.Consent:         c.Handler(signedIn.page(endpoint.Consent, signedIn.settled(signedIn.showConsent), signedIn.settled(signedIn.submitConsent)), form...),
	}
}

// providerEndpoints sign people in at their identity providers, and out, here and there.
func providerEndpoints(c *Config, signIn *signInEndpoint) map[string]http.Handler {
	federation := &federation{
		step: signIn.step, accounts: c.Accounts, secondFactor: signIn.secondFactor, signInPage: signIn,
		store: c.Store, identities: newIdentities(), states: store.NewLatest(maxStates, pendingLifetime),
	}
	logout := &logoutEndpoint{
		step: signIn.step, issuer: c.Issuer, clients: c.Authenticator.Clients, accounts: c.Accounts, sessions: c.Sessions,
		verifier: c.Tokens.Verifier, logger: c.Logger,
	}
	endpoints := map[string]http.Handler{endpoint.Logout: c.Handler(logout.serve, form...)}
	for key, p := range c.Accounts.Providers {
		endpoints[endpoint.Login+"/"+key] = c.Handler(federation.start(p), http.MethodGet)
		endpoints[endpoint.Callback+key] = c.Handler(federation.callback(p), http.MethodGet)
		endpoints[endpoint.Logout+"/"+key] = c.Handler(logout.callback, http.MethodGet)
	}
	return endpoints
}

func newStep(c *Config) *step {
	pages := &pages{Site: c.Pages, accounts: c.Accounts, ancestors: strings.Join(c.FrameAncestors, " ")}
	return &step{
		sealer: &browser.Sealer{Keys: c.Keys}, pages: pages, trail: c.Trail,
		requests: &requests{
			fhirBase: c.Accounts.FHIRBase, accounts: c.Accounts, clients: c.Authenticator.Clients, verifier: c.Tokens.Verifier,
			launches: c.Launches,
			objects:  &requestObjects{issuer: c.Issuer, clients: c.Authenticator.Clients, turns: fairqueue.New(fetchesAtOnce)},
		},
		responses: &responses{issuer: c.Issuer, omitIssuer: c.OmitIssuer, pages: pages, trail: c.Trail},
	}
}

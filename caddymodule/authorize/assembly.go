package authorize

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// assembly is a Server being put together, from the ground up.
type assembly struct {
	trail         *recorder
	responder     *responder
	limiter       *turnstile
	accounts      *accounts
	clients       *registry
	authenticator *authenticator
	revocations   *revocations
	consents      *consents
	sessions      *sessions
	tokens        *tokens
}

func newAssembly(c *Config) (*assembly, error) {
	a := &assembly{trail: &recorder{audit: c.Audit, clientAddress: c.ClientAddress}}
	a.responder = &responder{issuer: c.Issuer, isHTTPS: c.IsHTTPS, logger: c.Logger, trail: a.trail}
	a.limiter = &turnstile{
		Lockout: c.Lockout, store: c.Durable, keys: c.Keys, devices: &devices{c.Keys}, trail: a.trail, logger: c.Logger,
	}
	if err := a.limiter.setDefaults(); err != nil {
		return nil, err
	}
	for _, step := range []func(*Config) error{a.addPeople, a.addClients} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	a.revocations = newRevocations(c.Store, c.Durable, c.Logger)
	a.consents = &consents{durable: c.Durable, revocations: a.revocations}
	a.addSessions(c)
	a.addTokens(c)
	return a, nil
}

func (a *assembly) addPeople(c *Config) (err error) {
	a.accounts = &accounts{
		providers: map[string]*provider{}, store: c.Store, durable: c.Durable, fhirBase: c.fhirBase(), logger: c.Logger,
		lifetime:        c.SessionLifetime + c.CodeLifetime + c.AccessTokenLifetime + time.Minute,
		refreshLifetime: c.RefreshTokenLifetime,
	}
	for _, idp := range c.IdentityProviders {
		if err := a.accounts.addProvider(idp, c.Issuer+pathCallback+idp.Key); err != nil {
			return err
		}
	}
	if a.clients, err = newRegistry(c.Registration, c.Logger); err != nil {
		return err
	}
	if a.accounts.directory, err = newDirectory(c.Users, c.Passwords); err != nil {
		return err
	}
	return a.accounts.checkLinks()
}

// addClients registers the clients. None of them may share a name with a user: it is
// the sub of their tokens, and one would pass for the other (RFC 9700 §4.15).
func (a *assembly) addClients(c *Config) error {
	for _, client := range c.Clients {
		if a.clients.configured[client.ID] == nil && a.accounts.directory.users[client.ID] != nil {
			return fmt.Errorf("client %q and user %q must not have the same name", client.ID, client.ID)
		}
		if err := a.clients.add(client, c.Logger); err != nil {
			return err
		}
		for _, key := range client.IdentityProviders {
			if key != Local && a.accounts.providers[key] == nil {
				return fmt.Errorf("client %q: there is no idp %q", client.ID, key)
			}
		}
	}
	a.authenticator = &authenticator{
		issuer: c.Issuer, clients: a.clients, durable: c.Durable, limiter: a.limiter, logger: c.Logger,
	}
	return nil
}

func (a *assembly) addSessions(c *Config) {
	a.sessions = &sessions{
		durable: c.Durable, store: c.Store, lifetime: c.SessionLifetime,
		accounts: a.accounts, clients: a.clients, devices: a.limiter.devices, revocations: a.revocations,
		participants: &participants{clients: a.clients, durable: c.Durable, lifetime: c.SessionLifetime},
		notifier: &notifier{
			issuer: c.Issuer, keys: c.Keys, durable: c.Durable, trail: a.trail, logger: c.Logger, notices: newNotices(),
		},
		trail: a.trail, logger: c.Logger,
	}
}

func (a *assembly) addTokens(c *Config) {
	grants := &grants{accounts: a.accounts, consents: a.consents, revocations: a.revocations, sessions: a.sessions}
	holders := &holders{clients: a.clients, accounts: a.accounts, revocations: a.revocations}
	families := &families{
		durable: c.Durable, clients: a.clients, accounts: a.accounts, grants: grants, revocations: a.revocations,
		trail: a.trail, logger: c.Logger, lifetime: c.RefreshTokenLifetime, idleLifetime: c.RefreshTokenIdleLifetime,
		sessionLifetime: c.SessionLifetime, grace: c.RefreshTokenGrace, started: c.Started,
	}
	a.authenticator.ofRefreshToken = families.refreshClient
	a.tokens = &tokens{
		grants: grants, holders: holders, families: families,
		issuer: &tokenIssuer{
			issuer: c.Issuer, fhirBase: c.fhirBase(), accessTokenLifetime: c.AccessTokenLifetime, keys: c.Keys,
			clients: a.clients, accounts: a.accounts, grants: grants, revocations: a.revocations,
		},
		verifier: &verifier{
			issuer: c.Issuer, fhirBase: c.fhirBase(), keys: c.Keys, revocations: a.revocations, holders: holders,
		},
		codes: &codes{
			lifetime: c.CodeLifetime, store: c.Store, durable: c.Durable, recent: newRecentCodes(c.CodeLifetime),
			grants: grants, families: families, revocations: a.revocations, trail: a.trail,
		},
		endings: &endings{
			durable: c.Durable, accounts: a.accounts, clients: a.clients, sessions: a.sessions,
			revocations: a.revocations, trail: a.trail,
		},
	}
}

// tokens are what makes tokens, checks and ends them.
type tokens struct {
	grants   *grants
	holders  *holders
	families *families
	issuer   *tokenIssuer
	verifier *verifier
	codes    *codes
	endings  *endings
}

// routes are the endpoints by their paths.
func (a *assembly) routes(c *Config) (map[string]http.Handler, error) {
	routes := map[string]http.Handler{}
	a.addTokenEndpoints(c, routes)
	a.addPages(c, routes)
	return routes, a.addDocuments(c, routes)
}

func (a *assembly) addTokenEndpoints(c *Config, routes map[string]http.Handler) {
	userinfo := &userinfoEndpoint{responder: a.responder, accounts: a.accounts, verifier: a.tokens.verifier}
	revocation := &revocationEndpoint{
		responder: a.responder, authenticator: a.authenticator, families: a.tokens.families, revocations: a.revocations, verifier: a.tokens.verifier,
	}
	introspection := &introspectionEndpoint{
		responder: a.responder, authenticator: a.authenticator, clients: a.clients, families: a.tokens.families, revocation: revocation, userinfo: userinfo,
	}
	token := &tokenEndpoint{
		responder: a.responder, accessTokenLifetime: c.AccessTokenLifetime, fhirBase: c.fhirBase(),
		authenticator: a.authenticator, tokens: a.tokens.issuer, codes: a.tokens.codes, families: a.tokens.families,
	}
	routes[pathToken] = a.responder.endpoint(token.token, http.MethodPost)
	routes[pathRevoke] = a.responder.endpoint(revocation.revocation, http.MethodPost)
	routes[pathIntrospect] = a.responder.endpoint(introspection.introspect, http.MethodPost)
	routes[pathUserinfo] = a.responder.endpoint(userinfo.userinfo, http.MethodGet, http.MethodPost)
	if a.clients.registrar != nil {
		registration := &registrationEndpoint{responder: a.responder, registrar: a.clients.registrar, limiter: a.limiter}
		routes[pathRegister] = a.responder.endpoint(registration.registration, http.MethodPost, http.MethodGet, http.MethodPut, http.MethodDelete)
	}
}

// addPages adds what browsers are sent to.
func (a *assembly) addPages(c *Config, routes map[string]http.Handler) {
	pages := &pages{host: strings.TrimPrefix(c.Issuer, "https://"), accounts: a.accounts, logger: c.Logger}
	step := &step{
		browsers: &browsers{c.Keys}, pages: pages, trail: a.trail,
		requests:  &requests{fhirBase: c.fhirBase(), accounts: a.accounts, clients: a.clients, verifier: a.tokens.verifier},
		responses: &responses{issuer: c.Issuer, omitIssuer: c.OmitIssuer, pages: pages, trail: a.trail},
	}
	pushed := &pushes{keys: c.Keys, store: c.Store, count: store.NewMemory(maxPushed, 0)}
	push := &pushEndpoint{responder: a.responder, authenticator: a.authenticator, requests: step.requests, pushed: pushed}
	answers := &answers{
		step: step, accounts: a.accounts, consents: a.consents, grants: a.tokens.grants,
		codes: a.tokens.codes, tokens: a.tokens.issuer, participants: a.sessions.participants,
	}
	secondFactor := &secondFactorStep{
		step: step, store: c.Store, sessions: a.sessions, limiter: a.limiter,
		factors: &otp{durable: c.Durable, logger: c.Logger}, answers: answers,
	}
	signIns := &signIns{step: step, accounts: a.accounts, limiter: a.limiter, secondFactor: secondFactor}
	questions := &questions{
		step: step, accounts: a.accounts, sessions: a.sessions, consents: a.consents, signIns: signIns, answers: answers, logger: c.Logger,
	}
	authorization := &authorizationEndpoint{
		step: step, pushed: pushed, accounts: a.accounts, sessions: a.sessions, answers: answers, signIns: signIns,
	}
	logout := &logoutEndpoint{
		step: step, issuer: c.Issuer, clients: a.clients, accounts: a.accounts, sessions: a.sessions, verifier: a.tokens.verifier, logger: c.Logger,
	}
	form := []string{http.MethodGet, http.MethodPost}
	routes[pathAuthorize] = a.responder.endpoint(authorization.authorize, authorizeMethods(c)...)
	routes[pathPush] = a.responder.endpoint(push.push, http.MethodPost)
	routes[pathLogin] = a.responder.endpoint(signIns.login, form...)
	routes[pathLogout] = a.responder.endpoint(logout.logout, form...)
	routes[pathSelectAccount] = a.responder.endpoint(questions.question(pathSelectAccount, pages.showSelectAccount, questions.selectAccount), form...)
	routes[pathConsent] = a.responder.endpoint(questions.question(pathConsent, pages.showConsent, questions.takeConsent), form...)
	a.addProviders(c, routes, secondFactor, logout)
}

func authorizeMethods(c *Config) []string {
	if c.AuthorizePOST {
		return []string{http.MethodGet, http.MethodPost}
	}
	return []string{http.MethodGet}
}

// addProviders adds what identity providers send browsers back to, or send us.
func (a *assembly) addProviders(c *Config, routes map[string]http.Handler, secondFactor *secondFactorStep, logout *logoutEndpoint) {
	federation := &federation{
		step: secondFactor.step, accounts: a.accounts, secondFactor: secondFactor,
		returned: store.NewMemory(0, 0), identified: newIdentities(),
	}
	backchannel := &backchannelLogout{responder: a.responder, store: c.Store, sessions: a.sessions}
	for key, p := range a.accounts.providers {
		routes[pathLogin+"/"+key] = a.responder.endpoint(federation.leave(p), http.MethodGet)
		routes[pathCallback+key] = a.responder.endpoint(federation.comeBack(p), http.MethodGet)
		routes[pathBackchannelLogout+key] = a.responder.endpoint(backchannel.signedOutThere(p), http.MethodPost)
		routes[pathLogout+"/"+key] = a.responder.endpoint(logout.signedOutUpstream, http.MethodGet)
	}
}

// addDocuments adds what says what this server is and can.
func (a *assembly) addDocuments(c *Config, routes map[string]http.Handler) error {
	discovery := &discovery{responder: a.responder, omitIssuer: c.OmitIssuer, authorizePOST: c.AuthorizePOST, clients: a.clients, keys: c.Keys}
	openid, err1 := discovery.document(discovery.metadata())
	smart, err2 := discovery.document(discovery.smartConfiguration())
	for path, document := range map[string]http.HandlerFunc{
		pathJWKS:                                            discovery.jwks,
		"/.well-known/openid-configuration":                 openid,
		"/.well-known/oauth-authorization-server":           openid,
		c.FHIRBasePath + "/.well-known/smart-configuration": smart,
	} {
		routes[path] = a.responder.endpoint(document, http.MethodGet, http.MethodHead)
	}
	return errors.Join(err1, err2)
}

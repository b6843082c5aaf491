package flow

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/browser"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/lockout"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/token"
)

// Config is what the steps of a sign-in need.
type Config struct {
	*endpoint.Responder

	// AuthorizePOST takes authorization requests by POST, too.
	AuthorizePOST bool

	// OmitIssuer leaves iss (RFC 9207) out of authorization answers.
	OmitIssuer bool

	// Keys seal what browsers keep for us.
	Keys keyring.Keys

	// Store keeps what is under way, and Durable what must outlive a restart.
	Store, Durable store.Store

	// Limiter counts wrong passwords and codes.
	Limiter *lockout.Limiter

	// Authenticator knows the clients.
	Authenticator *client.Authenticator

	// Accounts are the people who may sign in.
	Accounts *people.Accounts

	// Consents are what people let clients have.
	Consents *consent.Consents

	// Sessions are the sign-ins that last.
	Sessions *session.Sessions

	// Tokens are what clients get.
	Tokens *token.Tokens
}

// flow is all that browsers are sent to.
type flow struct {
	authorization *authorizationEndpoint
	push          *pushEndpoint
	signIns       *signIns
	federation    *federation
	questions     *questions
	logout        *logoutEndpoint
}

func newFlow(c *Config) *flow {
	pages := &pages{host: strings.TrimPrefix(c.Issuer, "https://"), accounts: c.Accounts, logger: c.Logger}
	step := &step{
		browsers: &browser.Browsers{Keys: c.Keys}, pages: pages, trail: c.Trail,
		requests: &requests{
			fhirBase: c.Accounts.FHIRBase, accounts: c.Accounts, clients: c.Authenticator.Clients, verifier: c.Tokens.Verifier,
		},
		responses: &responses{issuer: c.Issuer, omitIssuer: c.OmitIssuer, pages: pages, trail: c.Trail},
	}
	pushed := newPushes(c.Keys, c.Store)
	answers := &answers{
		step: step, accounts: c.Accounts, consents: c.Consents, grants: c.Tokens.Grants,
		codes: c.Tokens.Codes, tokens: c.Tokens.Issuer, participants: c.Sessions.Participants,
	}
	secondFactor := &secondFactorStep{
		step: step, store: c.Store, sessions: c.Sessions, limiter: c.Limiter,
		factors: &people.OTP{Durable: c.Durable, Logger: c.Logger}, answers: answers,
	}
	signIns := &signIns{step: step, accounts: c.Accounts, limiter: c.Limiter, secondFactor: secondFactor}
	return &flow{
		authorization: &authorizationEndpoint{
			step: step, pushed: pushed, accounts: c.Accounts, sessions: c.Sessions, answers: answers, signIns: signIns,
		},
		push:       &pushEndpoint{Responder: c.Responder, authenticator: c.Authenticator, requests: step.requests, pushed: pushed},
		signIns:    signIns,
		federation: newFederation(step, c.Accounts, secondFactor),
		questions: &questions{
			step: step, accounts: c.Accounts, sessions: c.Sessions, consents: c.Consents, signIns: signIns, answers: answers, logger: c.Logger,
		},
		logout: &logoutEndpoint{
			step: step, issuer: c.Issuer, clients: c.Authenticator.Clients, accounts: c.Accounts, sessions: c.Sessions,
			verifier: c.Tokens.Verifier, logger: c.Logger,
		},
	}
}

// Endpoints are all that browsers are sent to, by their paths.
func Endpoints(c Config) map[string]http.Handler {
	f := newFlow(&c)
	authorize, form := []string{http.MethodGet}, []string{http.MethodGet, http.MethodPost}
	if c.AuthorizePOST {
		authorize = form
	}
	q := f.questions
	endpoints := map[string]http.Handler{
		endpoint.Authorize:           c.Handler(f.authorization.authorize, authorize...),
		endpoint.PushedAuthorization: c.Handler(f.push.push, http.MethodPost),
		endpoint.Login:               c.Handler(f.signIns.login, form...),
		endpoint.Logout:              c.Handler(f.logout.logout, form...),
		endpoint.SelectAccount:       c.Handler(q.question(endpoint.SelectAccount, q.pages.showSelectAccount, q.selectAccount), form...),
		endpoint.Consent:             c.Handler(q.question(endpoint.Consent, q.pages.showConsent, q.takeConsent), form...),
	}
	for key, p := range c.Accounts.Providers {
		endpoints[endpoint.Login+"/"+key] = c.Handler(f.federation.leave(p), http.MethodGet)
		endpoints[endpoint.Callback+key] = c.Handler(f.federation.comeBack(p), http.MethodGet)
		endpoints[endpoint.Logout+"/"+key] = c.Handler(f.logout.signedOutUpstream, http.MethodGet)
	}
	return endpoints
}

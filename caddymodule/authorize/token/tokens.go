package token

import (
	"net/http"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
)

// Config is what [Tokens] are made of.
type Config struct {
	*endpoint.Responder

	// FHIRBase is the aud of access tokens.
	FHIRBase string

	// Keys sign tokens, and check those that come back.
	Keys keyring.Keys

	// Store keeps codes, and Durable refresh tokens.
	Store, Durable store.Store

	// Lifetimes are how long what is given lasts.
	Lifetimes Lifetimes

	// Authenticator knows the clients.
	Authenticator *client.Authenticator

	// Accounts are whom tokens are about.
	Accounts *people.Accounts

	// Consents are what people let clients have.
	Consents *consent.Consents

	// Revocations are what is void.
	Revocations *revocation.Revocations

	// Sessions are what some tokens end with.
	Sessions *session.Sessions
}

// Lifetimes are how long what is given lasts.
type Lifetimes struct {
	// AccessToken is that of access and ID tokens.
	AccessToken time.Duration

	// Code is how long a code can be exchanged.
	Code time.Duration

	// Session is how long a sign-in lasts.
	Session time.Duration

	// Refresh is how long a person's grant can be refreshed in all.
	Refresh time.Duration

	// RefreshIdle is how long a refresh token can wait for its use.
	RefreshIdle time.Duration

	// RefreshGrace is how long after its use a refresh token gives the same successor
	// once more.
	RefreshGrace time.Duration

	// Started is when this process began to serve: RefreshGrace counts from then for
	// what an earlier process stored.
	Started func() time.Time
}

// Tokens are what makes tokens, checks and ends them.
type Tokens struct {
	// Grants says what of a grant still stands.
	Grants *Grants

	// Holders knows whom access tokens stand for.
	Holders *Holders

	// Issuer makes tokens.
	Issuer *Issuer

	// Verifier checks tokens of ours that come back.
	Verifier *Verifier

	// Codes are the authorization codes.
	Codes *Codes

	// Revoker ends what operators want ended.
	Revoker *Revoker

	families *families
	// Endpoints are the token, revocation, introspection and UserInfo endpoints, by path.
	Endpoints map[string]http.Handler
}

// New puts them together.
func New(c Config) *Tokens {
	t := &Tokens{
		Grants:  &Grants{accounts: c.Accounts, consents: c.Consents, revocations: c.Revocations, sessions: c.Sessions},
		Holders: &Holders{clients: c.Authenticator.Clients, accounts: c.Accounts, revocations: c.Revocations},
		Revoker: &Revoker{
			durable: c.Durable, accounts: c.Accounts, clients: c.Authenticator.Clients, sessions: c.Sessions,
			revocations: c.Revocations, trail: c.Trail,
		},
	}
	t.Issuer = &Issuer{
		issuer: c.Issuer, fhirBase: c.FHIRBase, AccessTokenLifetime: c.Lifetimes.AccessToken, keys: c.Keys,
		clients: c.Authenticator.Clients, accounts: c.Accounts, grants: t.Grants, revocations: c.Revocations,
	}
	t.Verifier = &Verifier{
		issuer: c.Issuer, fhirBase: c.FHIRBase, keys: c.Keys, revocations: c.Revocations, holders: t.Holders,
	}
	t.Verifier.signatures.MaxEntries = maxSignatures
	t.families = &families{
		Lifetimes: c.Lifetimes, durable: c.Durable, clients: c.Authenticator.Clients, accounts: c.Accounts, grants: t.Grants,
		revocations: c.Revocations, trail: c.Trail, logger: c.Logger,
	}
	t.Codes = &Codes{
		lifetime: c.Lifetimes.Code, store: c.Store, durable: c.Durable, recent: newRecentCodes(c.Lifetimes.Code),
		grants: t.Grants, families: t.families, revocations: c.Revocations, trail: c.Trail,
	}
	c.Authenticator.RefreshTokenClient = t.families.clientOf
	t.addEndpoints(&c)
	return t
}

func (t *Tokens) addEndpoints(c *Config) {
	userinfo := &userinfoEndpoint{Responder: c.Responder, accounts: c.Accounts, verifier: t.Verifier}
	revocation := &revocationEndpoint{
		Responder: c.Responder, authenticator: c.Authenticator, families: t.families, revocations: c.Revocations, verifier: t.Verifier,
	}
	introspection := &introspectionEndpoint{
		Responder: c.Responder, authenticator: c.Authenticator, families: t.families, revocation: revocation, userinfo: userinfo,
	}
	token := &tokenEndpoint{
		Responder: c.Responder, fhirBase: c.FHIRBase, authenticator: c.Authenticator, issuer: t.Issuer, codes: t.Codes, families: t.families,
	}
	t.Endpoints = map[string]http.Handler{
		endpoint.Token:      c.Handler(token.serve, http.MethodPost),
		endpoint.Revoke:     c.Handler(revocation.serve, http.MethodPost),
		endpoint.Introspect: c.Handler(introspection.serve, http.MethodPost),
		endpoint.Userinfo:   c.Handler(userinfo.serve, http.MethodGet, http.MethodPost),
	}
}

package token

import (
	"net/http"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/client"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/consent"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/keyring"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/launch"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/people"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/revocation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/session"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/store"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/fairqueue"
)

// Config configures [New].
type Config struct {
	*endpoint.Responder

	FHIRBase       string       // aud claim of access tokens
	Keys           keyring.Keys // signing keys
	Store, Durable store.Store  // stores for codes and for refresh tokens
	Lifetimes      Lifetimes    // lifetimes of tokens, codes and sessions

	Authenticator *client.Authenticator   // client authentication
	CountRequest  RequestCounter          // counts or rejects token requests
	Accounts      *people.Accounts        // users
	Patients      *launch.Patients        // checks relationships to patients
	Consents      *consent.Consents       // stored consents
	Revocations   *revocation.Revocations // revocations and cutoffs
	Sessions      *session.Sessions       // browser sessions
}

// RequestCounter counts a request to the token endpoint or returns an error to reject it. clientID is empty until the client is
// identified.
type RequestCounter func(w http.ResponseWriter, r *http.Request, clientID string, public bool) error

// Tokens issues, verifies and revokes tokens.
type Tokens struct {
	Grants   *Grants   // checks whether grants are valid
	Holders  *Holders  // finds holders of access tokens
	Issuer   *Issuer   // issues tokens
	Verifier *Verifier // verifies tokens
	Codes    *Codes    // issues and redeems codes
	Revoker  *Revoker  // revokes grants for operators and users
	Apps     *Apps     // lists apps with access
	families *tokenFamilies

	// Endpoints contains the token, revocation, introspection and UserInfo endpoints by path.
	Endpoints map[string]http.Handler
}

// New returns the Tokens for a configuration.
func New(c Config) *Tokens {
	apps := &appIndex{durable: c.Durable, grantLifetime: c.Lifetimes.Code + c.Lifetimes.AccessToken}
	t := &Tokens{
		Grants:  &Grants{accounts: c.Accounts, patients: c.Patients, consents: c.Consents, revocations: c.Revocations, sessions: c.Sessions, apps: apps},
		Holders: &Holders{clients: c.Authenticator.Clients, accounts: c.Accounts, revocations: c.Revocations},
		Revoker: &Revoker{
			durable: c.Durable, accounts: c.Accounts, clients: c.Authenticator.Clients, sessions: c.Sessions,
			revocations: c.Revocations, trail: c.Trail, apps: apps, consents: c.Consents, userQueue: fairqueue.New(1),
		},
	}
	t.Issuer = &Issuer{
		issuer: c.Issuer, fhirBase: c.FHIRBase, AccessTokenLifetime: c.Lifetimes.AccessToken, keys: c.Keys,
		clients: c.Authenticator.Clients, accounts: c.Accounts, grants: t.Grants, revocations: c.Revocations,
	}
	t.Verifier = &Verifier{
		issuer: c.Issuer, fhirBase: c.FHIRBase, keys: c.Keys, revocations: c.Revocations, holders: t.Holders,
	}
	t.Verifier.verifiedTokens.MaxEntries = maxCachedTokens
	t.families = &tokenFamilies{
		Lifetimes: c.Lifetimes, durable: c.Durable, clients: c.Authenticator.Clients, accounts: c.Accounts, grants: t.Grants,
		sessions: c.Sessions, revocations: c.Revocations, trail: c.Trail, logger: c.Logger,
	}
	t.Revoker.families = t.families
	t.Apps = &Apps{
		index: apps, families: t.families, consents: c.Consents, clients: c.Authenticator.Clients, sessions: c.Sessions, revocations: c.Revocations,
	}
	t.Codes = &Codes{
		lifetime: c.Lifetimes.Code, store: c.Store, durable: c.Durable, userLimit: store.NewPerUserLimit(maxCodesPerUser, c.Lifetimes.Code),
		grants: t.Grants, families: t.families, revocations: c.Revocations, trail: c.Trail,
	}
	t.addEndpoints(&c)
	return t
}

func (t *Tokens) addEndpoints(c *Config) {
	userinfo := &userinfoEndpoint{Responder: c.Responder, accounts: c.Accounts, verifier: t.Verifier, clients: c.Authenticator.Clients, keys: c.Keys}
	revocation := &revocationEndpoint{
		Responder: c.Responder, authenticator: c.Authenticator, families: t.families, revocations: c.Revocations, verifier: t.Verifier,
	}
	introspection := &introspectionEndpoint{
		Responder: c.Responder, authenticator: c.Authenticator, families: t.families, revocation: revocation, userinfo: userinfo,
	}
	token := &tokenEndpoint{
		Responder: c.Responder, fhirBase: c.FHIRBase, authenticator: c.Authenticator, issuer: t.Issuer, codes: t.Codes, families: t.families,
		countRequest: c.CountRequest,
	}
	c.Authenticator.InferClient = token.inferClient
	t.Endpoints = map[string]http.Handler{
		endpoint.Token:      c.Handler(token.serve, http.MethodPost),
		endpoint.Revoke:     c.Handler(revocation.serve, http.MethodPost),
		endpoint.Introspect: c.Handler(introspection.serve, http.MethodPost),
		endpoint.Userinfo:   c.Handler(userinfo.serve, http.MethodGet, http.MethodPost),
	}
}

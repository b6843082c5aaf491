// Package authorize is the authorization server: it signs users in, issues codes and tokens to registered
// clients, and identifies users to them (RFC 6749, RFC 7636, RFC 9068, RFC 9207, OpenID Connect Core 1.0).
//
// It does not depend on Caddy: a [Config] results in an [http.Handler] (config.go, server.go;
// the package's example performs a sign-in). core.go builds the server from these packages.
// Each package imports only packages listed below it:
//
//	flow            authorization requests from start to response: launch context, consent, logout
//	signin          authentication: password, identity provider, second factor
//	token           codes, access, refresh and ID tokens: issue, verification, revocation
//	session         browser sessions, and notification of clients when a session ends
//	revalidation    rechecks sign-ins at identity providers
//	consent         consents of users to clients
//	account         the user's account page
//	deprovisioning  ends sessions and grants at the request of identity providers
//	factor          authenticator apps, recovery codes and passkeys
//	people          local users, and people of identity providers
//	revocation      revoked tokens and cutoffs
//	client          registered clients and their authentication
//	endpoint        common parts of all endpoints: https, JSON, errors
//	page            HTML pages: look, texts, languages
//	lockout         delays after failed attempts with passwords, codes and secrets
//	browser         cookies, and texts sealed for one browser
//	audit, keyring, store, and oauth2, totp, relyingparty in caddymodule/internal
//
// Larger packages have a doc.go that describes their files. Packages shared with the Caddy modules
// (oauth2, totp, relyingparty) are in caddymodule/internal.
//
//	GET  /oauth2/authorize                          flow/authorization.go
//	POST /oauth2/launch                             flow/launchendpoint.go
//	POST /oauth2/par                                flow/pushed.go
//	GET, POST /oauth2/login                         signin/page.go, signin/secondfactor.go
//	GET  /oauth2/login/{idp}                        signin/federation.go    to an identity provider
//	GET  /oauth2/callback/{idp}                     signin/federation.go    and back
//	GET, POST /oauth2/select_account                flow/signedinpages.go
//	GET, POST /oauth2/consent                       flow/consent.go
//	GET, POST /oauth2/account                       account/endpoint.go
//	GET, POST /oauth2/logout                        flow/logout.go
//	GET  /oauth2/logo                               page/branding.go        if configured
//	GET  /oauth2/logo/{provider}                    page/branding.go        icon, if configured
//	POST /oauth2/token                              token/endpoint.go
//	POST /oauth2/revoke                             token/revoker.go
//	POST /oauth2/introspect                         token/introspection.go
//	GET, POST /oauth2/userinfo                      token/userinfo.go
//	GET  /oauth2/client_logo                        flow/clientlogo.go      if clients can register themselves
//	POST /oauth2/backchannel_logout/{idp}           session/end.go
//	GET  /.well-known/openid-configuration          discovery.go
//	GET  /.well-known/oauth-authorization-server    discovery.go
//	GET  /.well-known/jwks.json                     discovery.go
//	GET  /.well-known/oauth-protected-resource{fhir_base}
//	GET  {fhir_base}/.well-known/smart-configuration
//
// Features add endpoints: see [Feature].
//
// CORS policies are in server.go.
//
// Data that is used once or revoked (codes, pending second factors, revocations) is in
// [Config.Store]. Data that must survive a restart (sessions, refresh tokens, consents) is in
// [Config.DurableStore]. Requests that wait for user input are sealed and stored in the browser, so that
// abandoned and malicious requests use no memory.
//
// Errors are values ([oauth2.Error]), each sent in one place: on a page until the redirect URI is validated,
// then to the redirect URI (flow/responses.go), and as JSON at endpoints for clients (endpoint/endpoint.go).
package authorize

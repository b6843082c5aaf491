// Package authorize is the authorization server: it signs people in, issues codes and
// tokens to registered clients, and tells them who signed in (RFC 6749, RFC 7636, RFC 9068,
// RFC 9207, OpenID Connect Core 1.0).
//
// It knows nothing of Caddy: a [Config] goes in, an [http.Handler] comes out (config.go,
// server.go; the package's example serves a sign-in). core.go puts it together from
// these packages, each of which imports only those below it:
//
//	flow         from the authorization request to the response: consent, launch context, logout
//	account      the account page, /oauth2/account
//	signin       who somebody is: password, identity provider, second factor
//	deprovisioning  ends sessions and grants of people at the request of their identity provider
//	token        codes, access, refresh and ID tokens: issue, verify and revoke them
//	session      people who are signed in; who is notified when that ends
//	revalidation whether identity providers still admit those who signed in there
//	consent      what people allow clients
//	factor       authenticator apps, recovery codes and passkeys
//	people       local users, and people of identity providers
//	scopelimit   which scopes a person may have, by groups and claims
//	launch       the launch context: patient, encounter and what an EHR adds
//	revocation   which tokens are void
//	client       registered clients and their authentication
//	page         what people see: look, words, languages
//	endpoint     what all endpoints have in common: https, JSON, errors
//	lockout      waits after failed attempts with passwords, codes and secrets
//	browser      cookies, and texts sealed for one browser
//	audit, keyring, store, and oauth2, totp, relyingparty in caddymodule/internal
//
// Package sealedstorage, which fhirapp uses, seals the keys of a keyring in a store that several gateways share.
//
// The comment of a package with several files names them. The packages in caddymodule/internal are shared with the Caddy modules.
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
//	GET  /oauth2/logo                               page/branding.go        where there is one
//	POST /oauth2/token                              token/endpoint.go
//	POST /oauth2/revoke                             token/revoker.go
//	POST /oauth2/introspect                         token/introspection.go
//	GET, POST /oauth2/userinfo                      token/userinfo.go
//	GET  /oauth2/client_logo                        flow/clientlogo.go      where clients register themselves
//	POST /oauth2/backchannel_logout/{idp}           session/end.go
//	GET  /.well-known/openid-configuration          discovery.go
//	GET  /.well-known/oauth-authorization-server    discovery.go
//	GET  /.well-known/jwks.json                     discovery.go
//	GET  /.well-known/oauth-protected-resource{fhir_base}
//	GET  {fhir_base}/.well-known/smart-configuration
//
// Features add more: see [Feature].
//
// Scripts of other origins may read some of the answers; see server.go.
//
// What can be used once or revoked (codes, pending second factors, revocations) is in
// [Config.Store]; what must outlive a restart (sessions, refresh tokens, consents) is in
// [Config.Durable]. Requests that wait for a person are kept by their browser, sealed, so
// that abandoned and malicious ones take no memory here.
//
// Errors are values ([oauth2.Error]). Each has one place that sends it: to the person until
// the redirect URI is checked, then to the redirect URI (flow/responses.go), and as JSON at
// the endpoints for clients (endpoint/endpoint.go).
package authorize

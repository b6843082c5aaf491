// Package authorize is the authorization server: it signs people in, hands
// registered clients codes and tokens, and tells them who signed in
// (RFC 6749, RFC 7636, RFC 9068, RFC 9207, OpenID Connect Core 1.0).
//
// It knows nothing of Caddy: a [Config] goes in, an http.Handler comes out
// (config.go, server.go; the package's example serves a sign-in). assembly.go puts it together from these packages, of which
// each imports only those below it:
//
//	flow         a person's way from the authorization request to the answer
//	token        codes, access, refresh and ID tokens: make, check and end them
//	session      people who are signed in; who is told when that ends
//	consent      what people let clients have
//	people       local users, and those whom identity providers name; second factors
//	revocation   what is void of what was given
//	client       registered clients, and how they prove who they are
//	endpoint     what all endpoints do: https alone, JSON, errors
//	lockout      waits for those who guess passwords, codes and secrets
//	browser      cookies, and what is sealed for one browser
//	audit, keyring, oauth2, store, totp, upstream
//
// Each has a doc.go that names its files.
//
//	GET  /oauth2/authorize                          flow/authorization.go
//	POST /oauth2/par                                flow/pushed.go
//	GET, POST /oauth2/login                         flow/signin.go, flow/secondfactor.go
//	GET  /oauth2/login/{idp}                        flow/federation.go  to an identity provider
//	GET  /oauth2/callback/{idp}                     flow/federation.go  and back
//	GET, POST /oauth2/select_account                flow/selectaccount.go
//	GET, POST /oauth2/consent                       flow/consent.go
//	GET, POST /oauth2/logout                        flow/logout.go
//	POST /oauth2/token                              token/endpoint.go
//	POST /oauth2/revoke                             token/revocationendpoint.go
//	POST /oauth2/introspect                         token/introspection.go
//	GET, POST /oauth2/userinfo                      token/userinfo.go
//	GET, POST, PUT, DELETE /oauth2/register         client/registrationendpoint.go
//	POST /oauth2/backchannel_logout/{idp}           session/backchannellogout.go
//	GET  /.well-known/openid-configuration          discovery.go
//	GET  /.well-known/oauth-authorization-server    discovery.go
//	GET  /.well-known/jwks.json                     discovery.go
//	GET  {fhir_base}/.well-known/smart-configuration
//
// Scripts of other origins may read some of the answers: cors.go says which.
//
// What must be used once, or must be revocable (codes, half sign-ins, revocations), is in
// the [store.Store] of the configuration; what must outlive a restart (sessions, refresh
// tokens, consent) is in [Config.Durable]. What waits for a person is kept by their
// browser, sealed, so that abandoned or malicious requests take no memory here.
//
// Errors are values ([oauth2.Error]). Where they go is decided in one place each: to an
// error page while the redirect URI is not yet trusted, afterwards to the redirect URI
// (flow/responses.go), and at the endpoints that clients call to JSON
// (endpoint/responder.go).
package authorize

// Package authorize is the authorization server: it signs people in, hands
// registered clients codes and tokens, and tells them who signed in
// (RFC 6749, RFC 7636, RFC 9068, RFC 9207, OpenID Connect Core 1.0).
//
// It knows nothing of Caddy: a [Config] goes in, an http.Handler comes out.
//
//	GET  /oauth2/authorize                          authorize.go  check, then answer or ask to sign in
//	POST /oauth2/par                                pushed.go     the same check, before any browser sees it;
//	                                                sealedpush.go  and where it waits, for public clients
//	GET  /oauth2/login, POST /oauth2/login          login.go      the page, and what it sends;
//	                                                secondfactor.go  the next one, for the code
//	GET  /oauth2/login/{idp}                        federate.go   away to an identity provider
//	GET  /oauth2/callback/{idp}                     federate.go   and back
//	GET, POST /oauth2/select_account                selectaccount.go
//	GET, POST /oauth2/consent                       consent.go
//	POST /oauth2/register                           register.go   where apps may register themselves
//	GET, PUT, DELETE /oauth2/register               manage.go     and look after what they registered
//	POST /oauth2/token                              token.go      authorization_code, client_credentials, refresh_token
//	POST /oauth2/revoke                             revoke.go
//	POST /oauth2/introspect                         introspect.go
//	GET, POST /oauth2/userinfo                      userinfo.go
//	GET, POST /oauth2/logout                        logout.go     here, and where the sign-in was
//	POST /oauth2/backchannel_logout/{idp}           upstreamlogout.go  where providers say that somebody signed out
//	GET  /.well-known/openid-configuration          discovery.go
//	GET  /.well-known/oauth-authorization-server    discovery.go
//	GET  /.well-known/jwks.json                     discovery.go
//	GET  {fhir_base}/.well-known/smart-configuration
//
// A sign-in is a walk through these states; each arrow is one request:
//
//	authorize ──signed in─────────────────────────▶ answer ──▶ redirect URI, with code or tokens
//	    │  │                                          ▲  ▲ │                          ▲
//	    │  └─prompt=select_account─▶ account page ────┘  │ └─to be asked─▶ consent ───┘
//	    │                               │ another        │                  page, allow or deny
//	    ▼ not signed in                 ▼                │ session made
//	login page ──POST user name, password──▶ right ──┬───┤ no second factor
//	    │   ▲                                 │      ▼   │
//	    │   └─────────wrong, or must wait─────┘ login?factor ──right
//	    │                                            ▲   └──wrong, used, or must wait: once more
//	    └──link, or at once──▶ login/{idp} ──▶ provider ──▶ callback/{idp}, as "right"
//
// Before both factors were right there is no session, nor anything that another
// endpoint would take for one. Wrong tries are counted by account and address,
// and apart for browsers that are known to the person (lockout.go, counter.go,
// device.go).
//
// A session (session.go, sessions.go) ends by signing out, by its time, by another
// who signs in in that browser, by [Server.EndSession], by what the provider says
// that it began with, and when its user is removed or disabled, has another password
// or second factor, or could no longer come by that provider. Clients are told of all
// but the second and the last (backchannel.go).
//
// The pages for account and consent are bound to the session as well as to the
// browser (question.go). The answer goes into the query, the fragment or a form
// (responsetype.go, formpost.go).
//
// Who signs in by a provider has an account of their own, by issuer and subject
// (account.go), unless it is linked to a local user. offer.go decides which ways
// to sign in a client has; package upstream speaks with the providers.
//
// What waits for a person (the authorization request) is kept by the browser,
// sealed ([keyring.Keyring], keyring/seal.go) and bound to it by a cookie, so that abandoned or
// malicious requests take no memory here. It is checked again from scratch when
// it comes back, against the configuration of that moment. What must be used
// once, or must be revocable (codes, sessions), is in the [store.Store].
//
// All that one grant gives is a family (refresh.go, refreshtoken.go): the jti of
// its access tokens begins with the family's id, so that one entry revokes them
// all (revocation.go). What a session, person, client or pair was given until some
// moment is void by a cutoff (cutoff.go, endgrants.go), and an access token ends with
// whatever else it rests on (holder.go). What must outlive a restart is in [Config.Durable]: package
// boltstore is a [store.Store] in a file. Clients prove who they are in clientauth.go.
//
// The ground floor imports nothing of this package: oauth2 (errors, parameters, PKCE), store, keyring, audit,
// totp and upstream, each with a doc.go of its own.
//
// Errors are values ([oauth2.Error]). Where they go is decided in one place each:
// to an error page while the redirect URI is not yet trusted, afterwards to the
// redirect URI (response.go), and at the token and userinfo endpoints to JSON.
package authorize

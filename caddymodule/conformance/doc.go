// Package conformance has our ports of public test modules, which run against a
// whole gateway made from a Caddyfile. It holds tests alone.
//
// Each module keeps the id that it has in its suite. TestConformance runs them all
// and compares the results with docs/conformance.md; with -update it writes that
// page.
//
//	the OpenID Foundation's conformance suite
//	  basic_test.go            the code flow; core_test.go, requestobject_test.go and refresh_test.go are its modules
//	  implicit_test.go         the implicit flow
//	  formpost_test.go         both, by response_mode=form_post
//	  config_test.go           discovery and keys
//	  logout_test.go           RP-initiated and back-channel logout
//	  dynamic_test.go          dynamic registration, client assertions, and the plans that are not ported
//	Inferno's SMART App Launch test kit
//	  standalonelaunch_test.go discovery, standalone launch, OpenID Connect, token refresh
//	  backendservices_test.go  backend services, bulk data, token introspection
//	  brands_test.go           user-access brands
//	Inferno's (g)(10) test kit
//	  g10_test.go              invalid requests, scopes, revocation, and what is not built
//
// Below the modules:
//
//	plan_test.go                  plans, modules, variants; the page that comes of them
//	site_test.go                  the gateway, and the clients registered at it
//	relyingparty_test.go          a client and its browser: requests, redirects, forms
//	authorizationresponse_test.go what every authorization response must be
//	idtoken_test.go               what every ID token and userinfo response must be
//	tokenresponse_test.go         what every token response must be
//
// The modules run one after the other: all sign the same person in at the same
// gateway, and those that let time pass do so in a bubble of [testing/synctest].
package conformance

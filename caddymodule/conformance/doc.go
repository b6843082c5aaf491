// Package conformance has our ports of public test modules, which run against a
// whole gateway made from a Caddyfile. It holds tests alone.
//
// Each module keeps the id that it has in its suite. TestConformance runs them all
// and compares the results with docs/evidence/conformance.md; with -update it writes that
// page.
//
//	the OpenID Foundation's conformance suite
//	  basic_test.go            the code flow; core_test.go, requestobject_test.go and refresh_test.go are its modules
//	  implicit_test.go         the implicit flow
//	  formpost_test.go         both, by response_mode=form_post
//	  config_test.go           discovery and keys
//	  logout_test.go           RP-initiated and back-channel logout
//	  dynamic_test.go          dynamic registration, and the plans that are not ported
//	Inferno's SMART App Launch test kit
//	  standalonelaunch_test.go standalone launch
//	  ehrlaunch_test.go        launch from an EHR, and the EHR
//	  smartdiscovery_test.go   the SMART configuration
//	  smartopenid_test.go      OpenID Connect, token refresh
//	  introspection_test.go    token introspection
//	  backendservices_test.go  backend services, bulk data
//	  brands_test.go           user-access brands
//	Inferno's (g)(10) test kit
//	  g10_test.go              invalid requests, revocation, attestations
//	  g10apps_test.go          the apps of patients and practitioners
//	  g10subscopes_test.go     scopes by category, and what they let one read
//	  scopeselection_test.go   how people choose them on the consent page
//
// Below the modules:
//
//	plan_test.go                  plans, modules, variants; the page that comes of them
//	site_test.go                  the gateway, and the clients registered at it
//	binary_test.go                the binary in the place of the gateway in this process
//	fhirserver_test.go            the FHIR server and its records
//	named_test.go                 whether Inferno's groups are whole, and the named tests there
//	registeredparty_test.go       clients that register themselves, and their web server
//	relyingparty_test.go          a client and its browser: requests, redirects, forms
//	authorizationresponse_test.go what every authorization response must be
//	idtoken_test.go               what every ID token and userinfo response must be
//	tokenresponse_test.go         what every token response must be
//
// With -caddy the modules run against a binary, and with -fhir before another FHIR server: so do Inferno's
// in module e2e, before HAPI.
//
// The modules run one after the other: all sign the same person in at the same
// gateway, and those that let time pass do so in a bubble of [testing/synctest].
package conformance

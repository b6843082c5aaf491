// Package conformance has our ports of public test modules, which run against a
// whole gateway made from a Caddyfile. It holds tests alone.
//
// Each module keeps the id that it has in its suite. TestConformance runs them all
// and compares the results with docs/evidence/conformance.md; with -update it writes that
// page.
//
//	the OpenID Foundation's conformance suite
//	  basic_test.go            the code flow and the implicit flow, by response_mode=form_post too; refresh tokens; request objects
//	  config_test.go           discovery and keys
//	  logout_test.go           RP-initiated and back-channel logout
//	  dynamic_test.go          dynamic registration, and the plans that are not ported
//	Inferno's SMART App Launch test kit
//	  standalonelaunch_test.go standalone launch; launch from an EHR, and the EHR;
//	                           the SMART configuration; OpenID Connect, token refresh, token introspection
//	  backendservices_test.go  backend services, bulk data
//	  brands_test.go           user-access brands
//	Inferno's (g)(10) test kit
//	  g10_test.go              invalid requests, revocation, attestations; the apps of patients and practitioners; scopes by
//	                           category, what they let one read, and how people choose them on the consent page
//
// Below the modules:
//
//	plan_test.go         plans, modules, variants; the page that comes of them; whether Inferno's groups are whole
//	site_test.go         the gateway, and the clients registered at it; the binary in the place of the gateway in this process;
//	                     the FHIR server and its records
//	relyingparty_test.go a client and its browser: requests, redirects, forms; clients that register themselves
//	idtoken_test.go      what every authorization response, ID token, userinfo response and token response must be
//
// With -caddy the modules run against a binary, and with -fhir before another FHIR server: so do Inferno's
// in module e2e, before HAPI.
//
// The modules run one after the other: all sign the same person in at the same
// gateway, and those that let time pass do so in a bubble of [testing/synctest].
package conformance

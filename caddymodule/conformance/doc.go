// Package conformance ports public test modules and runs them against a complete gateway, configured with a Caddyfile. It
// contains only tests.
//
// Each module has the id that its suite uses. TestConformance runs all modules and compares the results with
// docs/evidence/conformance.md. With -update, it writes this page.
//
//	the OpenID Foundation's conformance suite
//	  basic_test.go            code flow and implicit flow, also with response_mode=form_post; refresh tokens; request objects
//	  config_test.go           discovery and keys
//	  logout_test.go           RP-initiated and back-channel logout
//	  dynamic_test.go          dynamic registration, and the plans that are not ported
//	Inferno's SMART App Launch test kit
//	  standalonelaunch_test.go standalone launch; launch from an EHR, and the EHR;
//	                           SMART configuration; OpenID Connect, token refresh, token introspection
//	  backendservices_test.go  backend services, bulk data
//	  brands_test.go           user-access brands
//	Inferno's (g)(10) test kit
//	  g10_test.go              invalid requests, revocation, attestations; patient and practitioner apps; scopes by
//	                           category, access with them, and their selection on the consent page
//
// Shared code:
//
//	plan_test.go         plans, modules, variants; the generated page; completeness of Inferno's groups
//	site_test.go         the gateway and its clients, in this process or in a separate binary;
//	                     the FHIR server and its records
//	relyingparty_test.go a client and its browser: requests, redirects, forms; self-registered clients
//	idtoken_test.go      checks of authorization responses, ID tokens, userinfo responses and token responses
//
// With -caddy, the modules run against a binary; with -fhir, against another FHIR server. Module e2e runs Inferno's modules
// against HAPI.
//
// The modules run sequentially, because all of them sign in the same user at the same gateway. Modules that wait run in a
// bubble of [testing/synctest].
package conformance

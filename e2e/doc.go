// Package e2e tests the built binary over TLS, with clients and a backend of third parties. It contains only
// tests.
//
//	main_test.go ── builds ../caddy, starts both servers
//	     │
//	     ├─ node/server.mjs        the backend: Medplum's FHIR router, in memory
//	     ├─ hapi                   HAPI's JPA server, for tests that need it (hapi_test.go)
//	     └─ caddy run              Caddyfile.example unchanged, at https://localhost:8443
//	           ▲
//	           ├─ golang.org/x/oauth2, coreos/go-oidc      relyingparty_test.go
//	           ├─ npm openid-client, oauth4webapi          nodeclients_test.go, node/*.test.mjs
//	           ├─ npm fhirclient in Chromium               fhirclient_test.go, node/smartapp
//	           ├─ npm fhir-kit-client, @medplum/core       nodefhirclients_test.go
//	           ├─ HAPI's terminology client                hapiterminology_test.go, hapi
//	           ├─ PyPI Authlib                             guides_test.go
//	           ├─ Chromium on the sign-in page             browser_test.go
//	           ├─ wrk during configuration reloads         reload_test.go
//	           ├─ kill -9, and state that survives it      restart_test.go
//	           │
//	           │  as a client of other providers (federation_test.go):
//	           ├─▶ npm oidc-provider                       oidcprovider_test.go, node/provider.mjs
//	           ├─▶ Debian's glewlwyd                       glewlwydsignin_test.go
//	           ├─▶ a second gateway                        federationchain_test.go
//	           └─▶ a provider that fails on demand (authorizetest) federationfault_test.go
//
// The guard's scope enforcement is attacked in front of HAPI and Medplum's router: with the records and
// requests of package guardattack (guard*_test.go), and with tables of expectations from other servers' test
// suites (smartcases*_test.go), if SMART_CASES is set to their folder. The flag -guard.more sends ten times
// as many attacks and measures times more often; -guard.seed selects other attacks.
//
// Tests with their own new patients (guardpatients_test.go) check each class of bugs for all requests, in
// front of HAPI itself, or through a proxy that makes HAPI behave like other FHIR servers
// (guardfront_test.go).
//
// Tests that stop a server, or need another configuration, start their own gateway on a free port.
//
// inferno_test.go runs Inferno's modules of package conformance through the binary in front of HAPI.
//
// postgres*_test.go run the store in PostgreSQL against servers of Debian's postgresql, which they start,
// stop, kill and replace; BenchmarkPostgres measures it.
//
// Commands in subfolders: bench measures the binary, synthetic the search in one process, searchquality the
// search results, house the code, and mutants the tests of the guard; deletable proves that each feature can
// be deleted; validator runs HL7's validator against the binary.
//
// The tests require Linux, Go and Node, and `npm ci` in node. Tests that need Chromium, wrk, or Java and
// Maven are skipped if these are not installed; with CI=true, Java and Maven are required. CADDY_BIN
// specifies a binary to test instead of building one. Logs and screenshots of a run are in out/.
//
// HAPI's server is started for the first test that needs it and shared by all tests, so each test must
// use its own resource ids. hapi/README.md describes the version and how to run it by hand. Maven downloads
// it on first use.
package e2e

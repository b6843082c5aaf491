// Package e2e drives the built binary from outside, over TLS, with clients and
// a backend that were written by others. It has tests only.
//
//	main_test.go ── builds ../caddy, starts both servers
//	     │
//	     ├─ node/server.mjs        the backend: Medplum's FHIR router, in memory
//	     ├─ hapi                   HAPI's JPA server, where a test asks for it (hapi_test.go)
//	     └─ caddy run              Caddyfile.example as it is, at https://localhost:8443
//	           ▲
//	           ├─ golang.org/x/oauth2, coreos/go-oidc      relyingparty_test.go
//	           ├─ npm openid-client, oauth4webapi          nodeclients_test.go, node/*.test.mjs
//	           ├─ npm fhirclient in Chromium               fhirclient_test.go, node/smartapp
//	           ├─ npm fhir-kit-client, @medplum/core       nodefhirclients_test.go
//	           ├─ HAPI's terminology client                hapiterminology_test.go, hapi
//	           ├─ PyPI Authlib                             guides_test.go
//	           ├─ Chromium through its sign-in page        browser_test.go
//	           ├─ wrk, while the configuration reloads     reload_test.go
//	           ├─ kill -9, and what outlives it            restart_test.go
//	           │
//	           │  as a client of other providers (federation_test.go):
//	           ├─▶ npm oidc-provider                       oidcprovider_test.go, node/provider.mjs
//	           ├─▶ Debian's glewlwyd                       glewlwydsignin_test.go
//	           ├─▶ a second gateway                        federationchain_test.go
//	           └─▶ one that fails on demand (authorizetest) federationfault_test.go
//
// What the gateway lets through under which scopes is attacked before HAPI, and before
// Medplum's router: with the records and requests of package guardattack
// (guard*_test.go), and with tables of what other servers' suites expect
// (smartcases*_test.go), if SMART_CASES names their folder. The flag -guard.more sends
// ten times as many attacks, and measures times more often; -guard.seed draws others.
//
// Tests with new patients of their own (guardpatients_test.go) check each class of bugs over all requests, in front of HAPI
// as it is, or through a proxy that makes HAPI behave like other FHIR servers (guardfront_test.go).
//
// Tests that stop a server, or need another configuration, start a gateway of
// their own on a free port.
//
// inferno_test.go runs Inferno's modules of package conformance through the binary and before HAPI.
//
// postgres*_test.go run the store in PostgreSQL against servers of Debian's postgresql, which
// they start, stop, kill and replace; BenchmarkPostgres measures it.
//
// bench measures the binary, synthetic the search in one process and searchquality what it finds, house the code, and
// mutants the tests of the guard; deletable proves that each feature can be deleted; validator has HL7's validator ask the binary. Each is a command.
//
// It runs on Linux, with Go and Node. `npm ci` in node comes first. Tests that
// need Chromium, wrk, or Java and Maven are skipped where these are not
// installed; under CI=true, Java and Maven must be. CADDY_BIN names a binary to
// test instead of building one. What a run leaves behind, logs and screenshots,
// is in out/.
//
// HAPI's server starts when the first test asks for it and is shared by all, so
// each test has resources with ids of its own there. hapi/README.md says which
// version it is and how to run it by hand. Maven fetches it, the first time from
// the network.
package e2e

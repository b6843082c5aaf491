// Package gatewaytest runs a Caddyfile in tests as a whole gateway, without a port:
// the configuration is provisioned and not started, and its server is called
// directly.
//
//	gateway.go   New: a gateway, and the browser before it
//	provision.go Adapt and Provision: a configuration, one at a time
//	caddyfile.go what a Caddyfile is adapted to, and the errors of a wrong one
//	cors.go      which scripts may call an endpoint
//	pace.go      a body that comes slowly
//	file.go      files that tests write and read
//	log.go       what Caddy logs, shown where the test fails
//	main.go      Main: a process that nothing set on the machine reaches
//
// The modules that a Caddyfile names are those that the test's program holds:
// Caddy's standard ones, and caddy-fhir's where the test imports package
// caddymodule. This package does not, so that the tests of that one can use it.
package gatewaytest

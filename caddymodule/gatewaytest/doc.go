// Package gatewaytest runs a Caddyfile in tests as a whole gateway, without a port:
// the configuration is provisioned and not started, and its server is called
// directly.
//
//	gateway.go    New: a gateway, and the browser before it; Adapt and Provision; files; Caddy's log; Main
//	caddyfile.go  what a Caddyfile is adapted to, and the errors of a wrong one
//	example.go    Caddyfile.example, and the tokens of its clients
//	authority.go  a certificate authority
//	issuer.go     an issuer of access tokens
//	cors.go       which scripts may call an endpoint
//	pace.go       a body that comes slowly
//
// The modules that a Caddyfile names are those that the test's program holds:
// Caddy's standard ones, and caddy-fhir's where the test imports package
// caddymodule. This package does not, so that the tests of that one can use it.
package gatewaytest

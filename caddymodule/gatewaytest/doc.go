// Package gatewaytest runs a Caddyfile as a complete gateway in tests, without a port. The configuration is provisioned but not
// started, and its HTTP server is called directly.
//
//	gateway.go    New: a gateway with a browser; Adapt and Provision; files; Caddy's log; Main
//	caddyfile.go  adapted Caddyfiles, and the errors for invalid ones
//	example.go    Caddyfile.example, and the tokens of its clients
//	authority.go  a certificate authority
//	issuer.go     an issuer of access tokens
//	cors.go       CORS checks of an endpoint
//	pace.go       a slow request body
//
// A Caddyfile can use the modules that are linked into the test binary: Caddy's standard modules and, if the test imports
// package caddymodule, those of caddy-fhir. This package does not import caddymodule, so that tests of package caddymodule can
// use it.
package gatewaytest

// Package registration is a feature: clients can register themselves by OAuth 2.0 Dynamic Client Registration (RFC 7591), its
// management protocol (RFC 7592), and OpenID Connect Dynamic Client Registration 1.0.
//
//	registration.go  options and Caddy module; client source for the authorization server; the operator's actions
//	endpoint.go      registration and configuration endpoints
//	metadata.go      client metadata and client key sets
//	shelf.go         client storage: Caddy's storage or a shared store
package registration

// Package registration is the feature that lets clients register themselves: OAuth 2.0 Dynamic Client Registration (RFC 7591),
// its management protocol (RFC 7592), and OpenID Connect Dynamic Client Registration 1.0.
//
//	registration.go  the options, and the Caddy module; finds registered clients for the authorization server; what the operator does with them
//	endpoint.go      the endpoints
//	metadata.go      client metadata, and the clients' key sets
//	shelf.go         where clients are stored: in Caddy's storage, or in a shared store
package registration

// Package registration is the feature that lets clients register themselves: OAuth 2.0 Dynamic Client Registration (RFC 7591),
// its management protocol (RFC 7592), and OpenID Connect Dynamic Client Registration 1.0.
//
//	registration.go           the options; finds registered clients for the authorization server
//	caddy.go                  the Caddy module
//	endpoint.go               the endpoints
//	metadata.go               client metadata
//	manage.go                 what the operator does with registered clients
//	shelf.go, sharedshelf.go  where they are stored: in Caddy's storage, or in a shared store
//	keys.go                   their key sets
package registration

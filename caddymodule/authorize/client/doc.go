// Package client knows the registered clients and authenticates them (RFC 6749 §2, RFC 7523,
// RFC 7591, RFC 7592).
//
//	client.go                  a client, and what it may do
//	check.go                   whether its settings go together
//	scope.go                   which scopes it is granted
//	granttype.go               which grant types it may use
//	redirecturi.go             where responses may be sent, also of apps on devices
//	registry.go                all clients, by client_id
//	authenticator.go           client authentication: secrets
//	assertion.go, keys.go      client authentication: private_key_jwt; the keys of all clients
//	requestobject.go           request objects, signed by its keys or not
//	secret.go                  which secrets can be guessed; digests of them
//	registrationendpoint.go    where apps register themselves, and read, update and delete their registration
//	metadata.go                what they say of themselves
//	registrar.go               knows registered clients
//	registered.go              what the operator does with them
//	shelf.go, sharedshelf.go   where they are kept: in Caddy's storage, or in a shared store
package client

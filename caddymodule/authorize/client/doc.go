// Package client knows the clients and authenticates them (RFC 6749 §2, RFC 7523).
//
//	client.go                  a client, and what it may do
//	check.go                   whether its settings go together
//	scope.go                   which scopes it is granted
//	granttype.go               which grant types it may use
//	redirecturi.go             where responses may be sent, also of apps on devices
//	registry.go                all clients, by client_id: of the configuration, and of a [Source]
//	authenticator.go           client authentication: secrets
//	assertion.go, keys.go      client authentication: private_key_jwt; the keys of all clients
//	secret.go                  which secrets can be guessed; digests of them
package client

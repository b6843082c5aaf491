// Package client knows the clients and authenticates them (RFC 6749 §2, RFC 7523).
//
//	client.go         a client: its settings and their checks, the scopes it is granted, its grant types
//	redirecturi.go    where responses may be sent, also of apps on devices
//	registry.go       all clients, by client_id: of the configuration, and of a [Source]
//	authenticator.go  client authentication by secret and by private_key_jwt; the keys of all clients
package client
